"""How large the entries of a partition have to be expected, and so how many to ask for.

Rules
- The state's sizes are not those of native entries: the average is at least that of what was read
  last, and a cautious one where there is nothing else.
- What the state said of an empty log, or a while ago, says nothing of what was appended since: it
  is asked again before any entries are.
"""

from time import monotonic

import msgspec

from korvet.topics import Topic

MAX_ENTRIES = 2_000
"""XRANGE answers at most this many: a millisecond of Redis's time and ten of a broker's, which
others wait for. Larger answers would hardly be cheaper."""
ROUND_BYTES = 8 << 20
"""An XRANGE that could answer more, were every entry as large as the largest, asks the index."""
STRANGER_BYTES = 1 << 16
"""What an entry is taken to have where nobody can say how large any is."""
MOST_SHAPES = 100_000
STALE_S = 1.0
"""A state that is so old is asked for again: entries of any size may have come."""


class Shape(msgspec.Struct, frozen=True):
    """How large a partition's entries are: averages and the largest, in bytes."""

    average: float
    largest: int

    def count_for(self, max_bytes: int, most: int = MAX_ENTRIES) -> int:
        """How many entries to ask for so that about `max_bytes` come."""
        return max(1, min(int(max_bytes / max(self.average, 1.0)) + 1, most))

    def skewed(self, count: int) -> bool:
        """Whether so many entries could be far more bytes than the average says."""
        return count * self.largest > max(ROUND_BYTES, 2 * self.largest)


class Shapes:
    """The shapes of the partitions that somebody reads, as the log's state has them and as what
    was read was."""

    def __init__(self) -> None:
        self._stated: dict[tuple[str, int], Shape] = {}
        self._learned: dict[tuple[str, int], float] = {}
        self._met: dict[tuple[str, int], float] = {}

    def learn(self, topic: Topic, partition: int, shape: Shape) -> None:
        """The log's state says this."""
        if len(self._stated) > MOST_SHAPES:
            self._stated.clear()
            self._learned.clear()
            self._met.clear()
        self._stated[topic.id, partition] = shape
        self._learned[topic.id, partition] = monotonic()

    def met(self, topic: Topic, partition: int, average: float) -> None:
        """What was read last was so large, in bytes an entry."""
        self._met[topic.id, partition] = average

    def known(self, topic: Topic, partition: int) -> bool:
        """Whether the partition's state was ever asked for."""
        return (topic.id, partition) in self._stated

    def average(self, topic: Topic, partition: int) -> float:
        """What the log's state says of a partition that is known."""
        return self._stated[topic.id, partition].average

    def suffice(self, topic: Topic, partition: int) -> bool:
        """Whether entries can be asked for by what is known, without asking for the state first."""
        place = topic.id, partition
        shape = self._stated.get(place)
        if shape is None or monotonic() - self._learned[place] >= STALE_S:
            return False
        return shape.average > 0 or place in self._met

    def expected(self, topic: Topic, partition: int) -> Shape:
        """How large entries have to be expected in a partition that is known."""
        place = topic.id, partition
        shape = self._stated[place]
        met = self._met.get(place, 0.0 if shape.average else STRANGER_BYTES)
        return shape if met <= shape.average else Shape(met, shape.largest)
