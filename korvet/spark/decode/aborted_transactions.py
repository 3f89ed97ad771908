"""Find the records of aborted transactions, which a committed read leaves out.

The transactions of a producer do not overlap: one binary search per producer finds the only one
that can contain an offset.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from korvet.wire.segments import AbortedRow

Ints = npt.NDArray[np.int64]


class AbortedIndex:
    """Aborted transactions by producer. False if there are none."""

    def __init__(self, aborted: Sequence[AbortedRow]) -> None:
        found: dict[int, list[tuple[int, int]]] = {}
        for each in aborted:
            found.setdefault(each.producer_id, []).append((each.first, each.last))
        self._by_producer = {
            producer_id: tuple(zip(*sorted(spans), strict=True))
            for producer_id, spans in found.items()
        }

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def contains(self, producer_id: int, offset: int) -> bool:
        """Return whether a transactional record is part of an aborted transaction."""
        spans = self._by_producer.get(producer_id)
        if spans is None:
            return False
        firsts, markers = spans
        at = bisect_right(firsts, offset) - 1
        return at >= 0 and offset < markers[at]

    def contain_each(self, producers: Ints, offsets: Ints) -> npt.NDArray[np.bool_]:
        """Return which transactional records are part of aborted transactions."""
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
