"""How a job says how far it is: a bar for people on a terminal, a JSON line a batch otherwise."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec


@contextmanager
def telling(label: str, total: Callable[[], int]) -> Iterator[Callable[[Any], None]]:
    """A function that takes what was done; `total` is only asked where a bar is drawn."""
    if not sys.stderr.isatty():
        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total())
        yield lambda done: bar.advance(task, done.records)


def line(done: Any) -> None:
    """The value is on stdout, as one line of JSON."""
    sys.stdout.write(msgspec.json.encode(done).decode() + "\n")
    sys.stdout.flush()
