"""Generate the table of log events from the calls of loggers in the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import korvet

LEVELS = {"debug", "info", "warning", "error", "exception", "error_again", "warning_again"}
_PACKAGE = Path(korvet.__file__).parent


def render() -> str:
    """Return the table: event, level, fields."""
    rows = sorted(set(events()))
    lines = ["| Event | Level | Fields |", "|---|---|---|"]
    lines += [f"| `{event}` | {level} | {', '.join(fields)} |" for event, level, fields in rows]
    return "\n".join(lines) + "\n"


def events(package: Path = _PACKAGE) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield event, level and field names of each logger call with a constant event."""
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (event := _event(node)):
                yield event, _level(node), tuple(sorted(_fields(node)))


def _event(call: ast.Call) -> str:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in LEVELS or not call.args:
        return ""
    first = call.args[0]
    named = isinstance(function.value, ast.Name) and function.value.id in ("log", "logger")
    if not named or not isinstance(first, ast.Constant) or "%" in str(first.value):
        return ""
    return str(first.value)


def _level(call: ast.Call) -> str:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return "error" if name == "exception" else name.removesuffix("_again")


def _fields(call: ast.Call) -> Iterator[str]:
    return (f"`{keyword.arg}`" for keyword in call.keywords if keyword.arg)
