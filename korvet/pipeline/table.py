"""What the jobs ask of a table, whatever its format."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from korvet.pipeline.errors import NoArchive
from korvet.pipeline.places import Place
from korvet.pipeline.ranges import Commit

Counted = Callable[[], tuple[int, int]]
"""How many rows were written and the sum of their hashes, once they have been."""
Recounted = Callable[[Commit], tuple[int, int]]
"""The same of a commit that is in the table already."""


class Table(Protocol):
    """A table of ours. Making one refuses what is not."""

    def state(self) -> Commit:
        """The newest commit; number 0 where there is none yet."""

    def append(self, frame: Any, before: Commit, planned: Commit, counted: Counted) -> Commit:
        """The rows and the commit are in the table, in one step; or Overtaken, and nothing is.

        `planned` follows `before` and does not know its rows; the commit returned does.
        """

    def settle(self, state: Commit, recounted: Recounted) -> Commit:
        """The state, with the newest commit's rows in its sums; a crash may have left them out."""

    def frame(self) -> Any:
        """The table's rows, as of one commit."""

    def compact(self, target_bytes: int) -> int:
        """Small files are fewer, no reader saw less or more; how many files are gone."""


class Making(msgspec.Struct, frozen=True):
    """What a table is made with when there is none."""

    values: str = "bytes"


def missing(place: Place) -> NoArchive:
    """What to raise where a table should be read and none is."""
    return NoArchive(f"There is no archive at {place}.")


def fresh(root: Path, unmade: re.Pattern[str]) -> bool:
    """Whether a table can be made there: there is nothing, or what is left of whoever died while
    they made one, by these names."""
    if not root.is_dir():
        return not root.exists()
    names = (each.relative_to(root).as_posix() for each in root.iterdir())
    if not all(map(unmade.fullmatch, names)):
        return False
    return all(unmade.fullmatch(each.relative_to(root).as_posix()) for each in root.rglob("*"))
