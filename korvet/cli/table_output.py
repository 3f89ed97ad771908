"""What commands print: tables for people on a terminal, tab-separated lines for programs."""

import re
import sys
from collections.abc import Iterable, Sequence

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """The rows are on stdout; off a terminal they have no header, so that `cut` and `awk` fit."""
    if not sys.stdout.isatty():
        for row in rows:
            sys.stdout.write("\t".join(map(_plain, row)) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        shown.add_row(*map(_plain, row))
    Console(markup=False, highlight=False).print(shown)


def line(text: str) -> None:
    """The text is on stdout, as one line."""
    sys.stdout.write(text + "\n")


def _plain(value: object) -> str:
    """The value without what would end its column or line: a group may have any name."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))
