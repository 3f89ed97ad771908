"""The table of `docs/keys.md`: every key, its type, what is in it, and who writes it.

Written from `korvet/keys.py` (whose docstrings say `type: what`) and from the KEYS of the scripts'
headers.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import msgspec

from korvet import keys as module
from korvet.keys import Keys, Partition
from korvet.scripts import bundle

# What a header calls keys of several partitions or groups at once.
_OF_A_PARTITION = tuple(name for name in Partition.__struct_fields__ if name != "channel")
_SEVERAL = {
    "logs": ("log",),
    "streams": ("stream",),
    "parts": (*_OF_A_PARTITION, "offsets"),
}


class Key(msgspec.Struct, frozen=True):
    """One kind of key: `name` is what keys.py and the headers call it."""

    name: str
    text: str
    type: str
    what: str

    @property
    def tag(self) -> str:
        """What Redis Cluster hashes of it."""
        _, brace, rest = self.text.partition("{")
        return rest.partition("}")[0] if brace else self.text


def render() -> str:
    """The table, keys first, then channels."""
    known = list(every_key())
    lines = ["| Key | Type | What | Written by |", "|---|---|---|---|"]
    for key in known:
        if key.type != "channel":
            scripts = ", ".join(f"`{name}`" for name in writers(key.name)) or "plain commands"
            lines.append(f"| `{key.text}` | {key.type} | {key.what} | {scripts} |")
    lines += ["", "| Channel | Rung |", "|---|---|"]
    lines += [f"| `{key.text}` | {key.what} |" for key in known if key.type == "channel"]
    return "\n".join(lines) + "\n"


def every_key(source: ModuleType = module) -> Iterator[Key]:
    """Every key and channel that keys.py can spell."""
    classes = {
        node.name: node
        for node in ast.parse(inspect.getsource(source)).body
        if isinstance(node, ast.ClassDef)
    }
    methods = [node for node in classes["Keys"].body if isinstance(node, ast.FunctionDef)]
    for method in methods:
        result = ast.unparse(method.returns) if method.returns else ""
        if method.name.startswith("_") or method.name == "group_part":
            continue
        value = _spelled(method)
        if result == "str":
            if method.name == "group_offsets":
                continue  # a field of Group
            yield _key(method.name, str(value), ast.get_docstring(method) or "")
        elif result in classes:
            for name, doc in _fields(classes[result]):
                yield _key(name, str(getattr(value, name)), doc)


def writers(name: str) -> list[str]:
    """The scripts that may write such a key, by their headers."""
    found = []
    for script in bundle.names():
        contract = bundle.load(script).contract
        named = {key for row in contract.keys for key in _SEVERAL.get(row.name, (row.name,))}
        if contract.writes and name in named:
            found.append(script)
    return found


def _key(name: str, text: str, doc: str) -> Key:
    kind, colon, what = " ".join(doc.split()).partition(": ")
    if not colon:
        raise ValueError(f"{name}: its docstring must say `type: what`, not {doc!r}")
    kind = "channel" if "channel" in kind else kind
    text = re.sub("%3C(.*?)%3E", r"<\1>", text).replace("<partition>", "<p>")
    return Key(name, text, kind, what.rstrip(".").replace("|", "\\|"))


def _spelled(method: ast.FunctionDef) -> object:
    """What the method answers when asked with placeholders."""
    names = [argument.arg.removesuffix("_id") for argument in method.args.args[1:]]
    return getattr(Keys(), method.name)(*(f"<{name}>" for name in names))


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Field and docstring, of a struct."""
    for field, doc in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = ast.literal_eval(doc.value) if isinstance(doc, ast.Expr) else ""
            yield field.target.id, str(text)
