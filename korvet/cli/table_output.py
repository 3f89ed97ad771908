"""Output of commands: tables on a terminal, tab-separated lines elsewhere, or JSON.

With --watch it is printed again: in place on a terminal, else one after another.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
import asyncio
from collections.abc import Awaitable
from itertools import count
from typing import TypeVar

import typer

T = TypeVar("T")
WRAPPED = 40
"""Longest cell that a table on a terminal shows in one line."""


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
Row = Sequence[object]


class Part(NamedTuple):
    """A line of text, or a table if there is no text."""

    text: str | None
    columns: Sequence[str] = ()
    rows: Sequence[Row] = ()

    def print(self, *, header: bool) -> None:
        """Print it as the commands print lines and tables."""
        if self.text is None:
            table(self.columns, self.rows, header=header)
        else:
            line(_plain(self.text))

    def shown(self, *, header: bool) -> "RenderableType":
        """Return it for a terminal."""
        from rich.text import Text

        if self.text is None:
            return _shown(self.columns, self.rows, header=header)
        return Text(_plain(self.text))


class Rows(NamedTuple):
    """A table of a view: its name in JSON, its columns and its rows."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Row]
    is_printed: bool = True
    in_json: tuple[Sequence[str], Sequence[Row]] | None = None
    """The columns and rows in JSON, if they are others."""


class View(NamedTuple):
    """A group as `describe` shows it: its state, which may be unknown, and its tables."""

    name: str
    state: Mapping[str, object]
    tables: Sequence[Rows]

    def document(self) -> dict[str, object]:
        """Return the group for JSON."""
        tables = {each.name: objects(*each.in_json or each[1:3]) for each in self.tables}
        return {"group": self.name, **self.state, **tables}

    def parts(self) -> Iterable[Part]:
        """Yield a line with the state, and the tables with an empty line between two of them."""
        if self.state:
            words = (
                f"{key} {'-' if value is None else value}" for key, value in self.state.items()
            )
            yield Part(f"{self.name}: {', '.join(words).removeprefix('state ')}")
        for at, each in enumerate(each for each in self.tables if each.is_printed):
            if at:
                yield Part("")
            yield Part(None, each.columns, each.rows)


def table(columns: Sequence[str], rows: Iterable[Row], *, header: bool = True) -> None:
    """Print rows below the names of their columns. Off a terminal each is a line with tabs.

    On a terminal that is too narrow, a row has a line for each of its values.
    """
    if not sys.stdout.isatty():
        if header:
            sys.stdout.write("\t".join(columns) + "\n")
        for row in rows:
            sys.stdout.write("\t".join(map(_plain, row)) + "\n")
        return
    from rich.console import Console

    console, found = Console(markup=False, highlight=False), list(rows)
    if _fits(columns, found, console.width):
        console.print(_shown(columns, found, header=header))
        return
    # Names and values below each other: a table would cut both.
    wide = max(map(len, columns))
    for row in found:
        for name, cell in zip(columns, row, strict=True):
            line(f"{name:{wide}}  {_plain(cell)}")
        line("")


def _fits(columns: Sequence[str], rows: Sequence[Row], width: int) -> bool:
    """Return whether a table of that width shows names and values whole, or can wrap long ones."""
    widest = [
        max(len(name), *(min(len(_plain(row[at])), WRAPPED) for row in rows), 0)
        for at, name in enumerate(columns)
    ]
    return sum(widest) + 2 * len(columns) - 2 <= width


def _shown(columns: Sequence[str], rows: Iterable[Row], *, header: bool) -> "Table":
    from rich.table import Table
    from rich.text import Text

    shown = Table(*columns, box=None, pad_edge=False, header_style="bold", show_header=header)
    for row in rows:
        # As text: a name with brackets is no markup.
        shown.add_row(*(Text(_plain(cell)) for cell in row))
    return shown


def objects(columns: Sequence[str], rows: Iterable[Row]) -> list[dict[str, object]]:
    """Name each row's values by their columns."""
    return [dict(zip(columns, row, strict=True)) for row in rows]


def document(value: Any) -> None:
    """Print a value, which may hold structs, as JSON, indented."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=_builtins) + "\n")


def _builtins(value: Any) -> Any:
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else str(value)


def moment(ms: int) -> str | None:
    """Return a time in ISO 8601, None if it is negative: there is none."""
    if ms < 0:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def line(text: str) -> None:
    """Print one line."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Print a remark on stderr: it is no part of the output."""
    sys.stderr.write(f"note: {text}\n")


def _plain(value: object) -> str:
    """Escape what would end a column or line: a group's name may hold any byte."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))


@contextmanager
def progress(label: str, total: int | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar; it does nothing if none is shown."""
    if not (shown and sys.stderr.isatty()):
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


def show(
    read: Callable[[T], Awaitable[View]],
    on: Callable[[Callable[[T], Awaitable[None]]], None],
    *,
    watch: float | None,
    as_json: bool,
    header: bool,
) -> None:
    """Print what `read` returns: as JSON, once, or with --watch every `watch` seconds.

    `on` runs a function with the log, or the receiver of requests, that `read` takes.
    """

    async def run(where: T) -> None:
        async def parts() -> Iterable[Part]:
            return (await read(where)).parts()

        if as_json:
            document((await read(where)).document())
        elif watch is not None:
            await repeat(parts, watch, header=header)
        else:
            for part in await parts():
                part.print(header=header)

    if as_json and watch is not None:
        raise typer.BadParameter("--watch prints tables: leave out --json")
    on(run)


async def repeat(
    parts: Callable[[], Awaitable[Iterable[Part]]],
    seconds: float,
    *,
    header: bool = True,
    screen: bool = False,
    times: int | None = None,
) -> None:
    """Print the parts every `seconds`, without end or `times` times.

    `screen`: use the whole screen of a terminal, which shows what it had before at the end.
    """
    if not sys.stdout.isatty():
        for number in count(1):
            for part in await parts():
                part.print(header=header and number == 1)
            sys.stdout.flush()
            if number == times:
                return
            await asyncio.sleep(seconds)
    from rich.console import Console, Group
    from rich.live import Live

    console = Console(markup=False, highlight=False)
    with Live(console=console, screen=screen, auto_refresh=False, transient=False) as live:
        for number in count(1):
            shown = [part.shown(header=header) for part in await parts()]
            live.update(Group(*shown), refresh=True)
            if number == times:
                return
            await asyncio.sleep(seconds)
