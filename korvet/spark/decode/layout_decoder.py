"""The interface of the decoders: one for each layout."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from korvet.log.entry import OffsetMap
from korvet.spark.decode.column_batch import ColumnBatch
from korvet.spark.decode.xrange_reply import XRangeReply
from korvet.spark.partitions import PartitionLog
from korvet.wire.segments import AbortedRow

Ints = npt.NDArray[np.int64]


class AbortedIndex:
    """Aborted transactions by producer, whose records a committed read leaves out. False if none.

    The transactions of a producer do not overlap: one binary search per producer finds the only
    one that can contain an offset.
    """

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


MAX_ENTRIES = 20_000
TAIL_ENTRIES = 1_000
"""Max entries per chunk after the last row of the index, where foreign entries may be."""


class LayoutDecoder(ABC):
    """Decodes the entries of one partition into columns of one schema."""

    chunk_bytes: ClassVar[int]
    """Bytes per chunk: small enough for the CPU caches of Redis, Python and Java."""
    tail_entries: ClassVar[int]
    """Max entries per chunk after the last row of the index."""
    holds_batches: ClassVar[bool]
    """Whether an entry is a batch: it may hold offsets below and above the ends of the range."""

    def __init__(self, log: PartitionLog, schema: Any, aborted: Sequence[AbortedRow]) -> None:
        self._log = log
        self._schema = schema
        self._names = set(schema.names)
        self._aborted = AbortedIndex(aborted)

    def places_of(self, reply: XRangeReply) -> OffsetMap:
        """Return the ids and offsets of the reply's log."""
        return reply.places or OffsetMap(self._log.mode, self._log.bits)

    @staticmethod
    @abstractmethod
    def parse_reply(raw: memoryview) -> XRangeReply:
        """Return the entries of the bytes of a reply."""

    @abstractmethod
    def parts(self, reply: XRangeReply) -> Iterator[ColumnBatch]:
        """Yield the records of the reply."""
