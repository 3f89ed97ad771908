"""Python source of a codec under construction: indentation, names, and the field of each line.

A generated codec does not track its position. When it fails, the line number of the failure is
looked up here and gives the field. So the path costs nothing until a message is malformed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def span(paths: list[str]) -> str:
    """Combine the paths of fields that one line reads or writes."""
    first, last = paths[0], paths[-1]
    return first if first == last else f"{first} to {last.rpartition('.')[2]}"


class Source:
    """Lines of one function, the objects they use, and the field path of each line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.paths: list[str] = []
        self.names: dict[str, Any] = {}
        self.path = ""
        self._indent = 0
        self._counter = 0
        self._known: dict[tuple[str, object], str] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)
        self.paths.append(self.path)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent the lines written inside one step below `head`."""
        self.line(head)
        self._indent += 1
        yield
        self._indent -= 1

    @contextmanager
    def at(self, step: str) -> Iterator[None]:
        """Attribute the lines written inside to the field `step` of the current field."""
        joint = "." if self.path and not step.startswith("[") else ""
        with self.about(f"{self.path}{joint}{step}"):
            yield

    @contextmanager
    def about(self, path: str) -> Iterator[None]:
        """Attribute the lines written inside to the field at `path`."""
        before, self.path = self.path, path
        yield
        self.path = before

    def fresh(self, stem: str) -> str:
        """Return an unused local name."""
        self._counter += 1
        return f"{stem}{self._counter}"

    def constant(self, stem: str, value: Any, key: object = None) -> str:
        """Return a global name for `value`; one name for the same stem and key."""
        known = (stem, key)
        if key is not None and known in self._known:
            return self._known[known]
        name = self.fresh(stem.upper() + "_")
        self.names[name] = value
        if key is not None:
            self._known[known] = name
        return name

    def compile(self, name: str, filename: str) -> Callable[..., Any]:
        """Compile the lines and return the function `name` that they define."""
        scope = dict(self.names)
        exec(compile("\n".join(self.lines) + "\n", filename, "exec"), scope)
        function: Callable[..., Any] = scope[name]
        return function

    def path_of(self, error: BaseException, indexes: tuple[int, ...] = ()) -> str:
        """Return the field of the failing line, with the list positions reached."""
        trace = error.__traceback__
        if trace is None:
            return "message"
        path = self.paths[trace.tb_lineno - 1] or "message"
        for position, index in enumerate(indexes):
            path = path.replace(f"[{{{position}}}]", f"[{index}]")
        return path
