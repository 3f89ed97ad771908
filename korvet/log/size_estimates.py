"""How large the entries of a partition have to be expected, and so how many to ask for.

Rules
- The next entries are taken to be as large as those right before them were, where that is known
  (the reader who stands there has just read them), and else as all are on average, by the log's
  state. Sizes of native entries are in no state.
- Whatever is expected: so many entries that they could be far more bytes than were asked for, each
  of them being as large as the largest, are not asked for without an end. It comes from the index,
  which knows bytes.
- What the state said a while ago says nothing of what was appended since.
"""

from collections.abc import Sequence
from time import monotonic

import msgspec

from korvet.topics.table import Topic

MAX_ENTRIES = 2_000
"""XRANGE answers at most this many: a millisecond of Redis's time and ten of a broker's, which
others wait for. Larger answers would hardly be cheaper."""
ROUND_BYTES = 8 << 20
"""An XRANGE that could answer more, were every entry as large as the largest, asks the index; and
so does one that could answer eight times what is wanted."""
STRANGER_BYTES = 1 << 16
"""What an entry is taken to have where nobody can say how large any is."""
FEW = 10
"""So many entries are asked for where nothing is known of what was appended lately."""
INDEX_BYTES = 1 << 16
"""What lies between two steps of the index, at least."""
INDEX_ROWS = 64
MOST_SHAPES = 100_000
MOST_MET = 10_000
STALE_S = 0.25
"""A state that is so old is asked for again: entries of any size may have come."""


class SizeEstimate(msgspec.Struct, frozen=True):
    """How large a log's entries are, on average and the largest, in bytes; where it ended, where
    the oldest transaction was open (-1 or None: nowhere), and when that was so."""

    average: float
    largest: int
    end: int
    stable: int | None
    moment: float

    def at_most(self, max_bytes: int) -> int:
        """So many entries are not far more bytes than are wanted, however large each is."""
        much = max(min(ROUND_BYTES, 8 * max_bytes), max_bytes * 3 // 2)
        return max(1, much // max(self.largest, 1))

    def skewed(self, count: int, max_bytes: int) -> bool:
        """Whether so many entries could be far more bytes than are wanted."""
        return count > max(2, self.at_most(max_bytes))

    def newest(self, max_bytes: int) -> int:
        """So many entries can be asked for where the log ended, whatever has come since."""
        most = self.at_most(max_bytes)
        return min(FEW, most) if self.is_old else most

    @property
    def is_old(self) -> bool:
        """Whether it says nothing of what came since."""
        return monotonic() - self.moment >= STALE_S


def count_for(max_bytes: int, average: float, most: int) -> int:
    """How many entries to ask for so that about `max_bytes` come."""
    return max(1, min(int(max_bytes / max(average, 1.0)) + 1, most))


def steps_for(max_bytes: int) -> int:
    """How many steps of the index to ask for where about `max_bytes` are to be read."""
    return min(INDEX_ROWS, max_bytes // INDEX_BYTES + 3)


def end_of(steps: Sequence[bytes], max_bytes: int) -> int | None:
    """Up to which offset the steps of the index that follow one have about `max_bytes`; None where
    all that follows is not much."""
    ends = [(int(offset), int(size)) for offset, _, size, _ in (row.split(b":") for row in steps)]
    if len(ends) < 2:
        return None
    # Nothing may lie before the first step, something lies before the second.
    within = [offset for offset, size in ends[2:] if size - ends[0][1] <= max_bytes]
    return [ends[1][0], *within][-1] - 1


class SizeEstimates:
    """The shapes of the partitions that somebody reads, and what was read of them last."""

    def __init__(self) -> None:
        self._stated: dict[tuple[str, int], SizeEstimate] = {}
        self._met: dict[tuple[str, int, int], float] = {}

    def learn(
        self,
        topic: Topic,
        partition: int,
        average: float,
        largest: int,
        end: int,
        stable: int | None,
    ) -> None:
        """The log's state says this."""
        if len(self._stated) > MOST_SHAPES:
            self._stated.clear()
        self._stated[topic.id, partition] = SizeEstimate(average, largest, end, stable, monotonic())

    def met(self, topic: Topic, partition: int, offset: int, average: float) -> None:
        """What was read up to `offset` was so large, in bytes an entry."""
        place = topic.id, partition, offset
        self._met.pop(place, None)
        if len(self._met) >= MOST_MET:
            del self._met[next(iter(self._met))]
        self._met[place] = average

    def of(self, topic: Topic, partition: int) -> SizeEstimate | None:
        """What the log's state said last; None where it was never asked for."""
        return self._stated.get((topic.id, partition))

    def is_open(self, topic: Topic, partition: int, offset: int) -> bool:
        """Whether a transaction was open before the offset when the state said something last."""
        shape = self._stated.get((topic.id, partition))
        return shape is not None and shape.stable is not None and 0 <= shape.stable <= offset

    def average(self, topic: Topic, partition: int, offset: int) -> float:
        """How large entries have to be expected from there on."""
        met = self._met.get((topic.id, partition, offset))
        if met is not None:
            return met
        shape = self._stated.get((topic.id, partition))
        return (shape and shape.average) or STRANGER_BYTES
