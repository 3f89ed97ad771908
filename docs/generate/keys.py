"""Generate the table of docs/keys.md: every key with its type, content and writers.

The sources are the docstrings of `korvet/scripts/keys.py` (`type: what`; in methods, `Name the
type: what`) and the KEYS of the scripts.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import msgspec

from korvet.scripts import bundle
from korvet.scripts import keys as module
from korvet.scripts.keys import ADDRESS_FIELDS, Keys, Partition

# The names in headers for keys of several partitions or groups.
_OF_A_PARTITION = tuple(set(Partition.__struct_fields__) - {*ADDRESS_FIELDS, "channel"})
_SEVERAL = {
    "logs": ("log",),
    "streams": ("stream",),
    "parts": (*_OF_A_PARTITION, "offsets"),
}


_NAMES = {"number": "partition"}


class Key(msgspec.Struct, frozen=True):
    """A kind of key; `name` is its name in keys.py and in the script headers."""

    name: str
    text: str
    type: str
    what: str

    @property
    def tag(self) -> str:
        """The part of the key that Redis Cluster hashes."""
        _, brace, rest = self.text.partition("{")
        return rest.partition("}")[0] if brace else self.text


def render() -> str:
    """Return the table of keys and the table of channels."""
    known = list(every_key())
    lines = ["| Key | Type | Content | Written by |", "|---|---|---|---|"]
    for key in known:
        if key.type != "channel":
            scripts = ", ".join(f"`{name}`" for name in writers(key.name)) or "plain commands"
            lines.append(f"| `{key.text}` | {key.type} | {key.what} | {scripts} |")
    lines += ["", "| Channel | Published |", "|---|---|"]
    lines += [f"| `{key.text}` | {key.what} |" for key in known if key.type == "channel"]
    return "\n".join(lines) + "\n"


def every_key(source: ModuleType = module) -> Iterator[Key]:
    """Yield every key and channel of keys.py."""
    classes = {
        node.name: node
        for node in ast.parse(inspect.getsource(source)).body
        if isinstance(node, ast.ClassDef)
    }
    methods = [node for node in classes["Keys"].body if isinstance(node, ast.FunctionDef)]
    for method in methods:
        result = ast.unparse(method.returns) if method.returns else ""
        if method.name.startswith("_") or result not in {"str", *classes}:
            continue
        value = _example(method)
        if result == "str":
            if method.name == "group_offsets":
                continue  # a field of Group
            yield _key(method.name, str(value), ast.get_docstring(method) or "")
        else:
            for name, doc in _fields(classes[result]):
                if name not in ADDRESS_FIELDS:
                    yield _key(name, str(getattr(value, name)), doc)


def writers(name: str) -> list[str]:
    """Return the scripts whose header lets them write a key."""
    found = []
    for script in bundle.names():
        contract = bundle.load(script).contract
        named = {key for row in contract.keys for key in _SEVERAL.get(row.name, (row.name,))}
        if contract.writes and name in named:
            found.append(script)
    return found


def _key(name: str, text: str, doc: str) -> Key:
    kind, colon, what = " ".join(doc.split()).removeprefix("Name the ").partition(": ")
    if not colon:
        raise ValueError(f"{name}: its docstring must say `type: what`, not {doc!r}")
    kind = "channel" if "channel" in kind else kind
    text = re.sub("%3C(.*?)%3E", r"<\1>", text).replace("<partition>", "<p>")
    return Key(name, text, kind, what.rstrip(".").replace("|", "\\|"))


def _example(method: ast.FunctionDef) -> object:
    """Return the result of a method of Keys for placeholders."""
    names = [_NAMES.get(each.arg, each.arg.removesuffix("_id")) for each in method.args.args[1:]]
    return getattr(Keys(), method.name)(*(f"<{name}>" for name in names))


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the fields of a struct with their docstrings."""
    for field, doc in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = ast.literal_eval(doc.value) if isinstance(doc, ast.Expr) else ""
            yield field.target.id, str(text)
