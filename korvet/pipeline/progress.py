"""Report a job's progress: a bar on a terminal, otherwise one JSON line per commit."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec


@contextmanager
def progress_reporter(label: str, total: Callable[[], int]) -> Iterator[Callable[[Any], None]]:
    """Yield a function that reports a commit; `total` is called only if a bar is drawn."""
    if not sys.stderr.isatty():
        yield print_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total())
        yield lambda done: bar.advance(task, done.records)


def print_line(done: Any) -> None:
    """Print the value as one line of JSON."""
    sys.stdout.write(msgspec.json.encode(done).decode() + "\n")
    sys.stdout.flush()
