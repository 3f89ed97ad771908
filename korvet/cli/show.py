"""What commands print: tables for people on a terminal, tab-separated lines for programs."""

import sys
from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """The rows are on stdout; off a terminal they have no header, so that `cut` and `awk` fit."""
    if not sys.stdout.isatty():
        for row in rows:
            sys.stdout.write("\t".join(map(str, row)) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        shown.add_row(*map(str, row))
    Console(markup=False, highlight=False).print(shown)


def line(text: str) -> None:
    """The text is on stdout, as one line."""
    sys.stdout.write(text + "\n")
