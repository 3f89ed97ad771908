"""Output that is printed again at an interval: in place on a terminal, else one after another."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import TypeVar

import typer

from korvet.cli import table_output
from korvet.cli.table_output import Part, View

T = TypeVar("T")


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
            table_output.document((await read(where)).document())
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
