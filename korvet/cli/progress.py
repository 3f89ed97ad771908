"""A progress bar on stderr, if that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
