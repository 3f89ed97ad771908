"""The mirrors of the scripts: which function builds calls of which script, read from source."""

import ast
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

import msgspec

import korvet.scripts
from korvet.keys import Group, Keys, Partition
from korvet.scripts.call import Call, Script


@dataclass(frozen=True)
class Mirror:
    """A function that builds calls of one script."""

    script: Script[Any]
    function: Callable[..., Call[Any]]

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__name__}"

    def parameters(self) -> dict[str, Any]:
        """Return name -> annotation of the parameters for ARGV: the keyword-only ones."""
        hints = typing.get_type_hints(self.function)
        found: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                found[name] = hints[name]
            elif parameter.kind is parameter.VAR_KEYWORD:  # Unpack[a TypedDict]
                found |= typing.get_type_hints(typing.get_args(hints[name])[0])
        return found

    def sample(self) -> Call[Any]:
        """Return a call with example arguments."""
        hints = typing.get_type_hints(self.function)
        keyword = {name: example(annotation) for name, annotation in self.parameters().items()}
        positional = [
            example(hints[name])
            for name, parameter in inspect.signature(self.function).parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        return self.function(*positional, **keyword)

    def key_names(self) -> list[tuple[str, bool]] | None:
        """Return each key's name in the source, and whether it is the name of several keys.

        None if another function builds the tuple of keys."""
        tree = ast.parse(inspect.getsource(self.function))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Call":
                keys = node.args[1]
                items = keys.elts if _is_tuple(keys) else [ast.Starred(keys)]
                names = [name for item in items for name in _key_names(item)]
                return None if not _is_tuple(keys) and names[0][1] else names
        return None


def _is_tuple(node: ast.expr) -> typing.TypeGuard[ast.Tuple]:
    return isinstance(node, ast.Tuple)


def _key_names(node: ast.expr) -> list[tuple[str, bool]]:
    """Return the names of one item of the tuple: `*k.classic` is several known keys."""
    if isinstance(node, ast.Starred) and ast.unparse(node.value) in _SEVERAL:
        owner, property_ = _SEVERAL[ast.unparse(node.value)]
        # Reversed: a partition's channel has the name of its stream.
        fields = {str(getattr(owner, name)): name for name in reversed(owner.__struct_fields__)}
        return [(fields[key], False) for key in getattr(owner, property_)]
    return [_key_name(node)]


_GROUP, _PARTITION = Keys().group("g"), Keys().partition("t", 0)
_SEVERAL: dict[str, tuple[Group | Partition, str]] = {
    "k.classic": (_GROUP, "classic"),
    "k.consumer": (_GROUP, "consumer"),
    "k.appends": (_PARTITION, "appends"),
}


def _key_name(node: ast.expr) -> tuple[str, bool]:
    """Return the name of a key, and whether it is several keys.

    `k.log` is log, `keys.topics()` topics, `keys.group_part(g, "x")` x, `*more` several."""
    if isinstance(node, ast.Starred):
        return ast.unparse(node.value), True
    if isinstance(node, ast.Call):
        texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
        return _key_name(node.func) if not texts else (str(texts[-1]), False)
    if isinstance(node, ast.Attribute):
        return node.attr, False
    return ast.unparse(node), False


@cache
def scripts() -> list[tuple[str, Script[Any]]]:
    """Return every Script that a module of `korvet.scripts` defines, with its full name."""
    found = []
    for module in _modules():
        for name, value in vars(module).items():
            if isinstance(value, Script):
                found.append((f"{module.__name__}.{name}", value))
    return found


@cache
def mirrors() -> list[Mirror]:
    """Return every function that names a Script in the `Call` it returns."""
    found = []
    for module in _modules():
        own = {name: value for name, value in vars(module).items() if isinstance(value, Script)}
        for function in vars(module).values():
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                found += [Mirror(own[name], function) for name in _called(function, own)]
    return found


def _called(function: Any, own: Mapping[str, Any]) -> Iterator[str]:
    for node in ast.walk(ast.parse(inspect.getsource(function))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Call":
            name = ast.unparse(node.args[0])
            if name in own:
                yield name


def _modules() -> list[types.ModuleType]:
    found = pkgutil.walk_packages(korvet.scripts.__path__, "korvet.scripts.")
    return [importlib.import_module(info.name) for info in found if not info.ispkg]


def kind_of(annotation: Any) -> str:
    """Return `int`, `bytes` or `list`: the type of an annotation in a script's header."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        kinds = {kind_of(arg) for arg in typing.get_args(annotation)}
        return kinds.pop() if len(kinds) == 1 else "bytes"
    if annotation in (str, bytes, bytearray, memoryview):
        return "bytes"
    if isinstance(annotation, type) and issubclass(annotation, int):
        return "int"
    return "list"


def example(annotation: Any) -> Any:
    """Return an example value of the type."""
    if annotation is Keys:
        return Keys()
    if annotation is range:
        return range(1, 3)
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return example(arguments[0])
    if origin in (list, Sequence, Iterable):
        return [example(arguments[0])] * 2
    if origin is tuple:
        return tuple(example(argument) for argument in arguments if argument is not ...)
    if origin in (dict, Mapping):
        return {example(arguments[0]): example(arguments[1])}
    if isinstance(annotation, type):
        return _example_of_class(annotation)
    raise TypeError(f"no example of {annotation}: add one to tests/support/script_calls.py")


def _example_of_class(kind: type) -> Any:
    if issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(
            **{field.name: example(hints[field.name]) for field in msgspec.structs.fields(kind)}
        )
    if issubclass(kind, IntEnum):
        return next(iter(kind))
    plain: dict[type, Any] = {int: 1, str: "x", bytes: b"x", bool: True, float: 1.0}
    return plain.get(kind) or kind()
