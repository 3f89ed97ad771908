"""What a committed read leaves out beside markers: records of aborted transactions.

A producer's transactions follow one another, so that of each producer one search finds the only one
that an offset can be in, however many there are.
"""

from bisect import bisect_right
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Aborted(msgspec.Struct, frozen=True):
    """A producer's transaction that never happened: its records from `first` to the marker."""

    producer_id: int
    first: int
    marker: int


class Undone:
    """Aborted transactions, by producer; false where there are none."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        found: dict[int, list[tuple[int, int]]] = {}
        for each in aborted:
            found.setdefault(each.producer_id, []).append((each.first, each.marker))
        self._by_producer = {
            producer_id: tuple(zip(*sorted(spans), strict=True))
            for producer_id, spans in found.items()
        }

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def has(self, producer_id: int, offset: int) -> bool:
        """Whether a transactional record belongs to any of them."""
        spans = self._by_producer.get(producer_id)
        if spans is None:
            return False
        firsts, markers = spans
        at = bisect_right(firsts, offset) - 1
        return at >= 0 and offset < markers[at]

    def have(self, producers: Ints, offsets: Ints) -> npt.NDArray[np.bool_]:
        """Which of many transactional records do."""
        found = np.zeros(len(offsets), dtype=bool)
        for producer_id in np.unique(producers).tolist():
            spans = self._by_producer.get(producer_id)
            if spans is None:
                continue
            firsts, markers = (np.array(each, dtype=np.int64) for each in spans)
            own = np.flatnonzero(producers == producer_id)
            at = np.searchsorted(firsts, offsets[own], side="right") - 1
            found[own] = (at >= 0) & (offsets[own] < markers[at])
        return found
