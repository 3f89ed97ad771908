"""The interface of the decoders, one for each layout, and the columns that they yield."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from korvet.log.entry import OffsetMap
from korvet.spark import arrow
from korvet.spark.decode.xrange_reply import XRangeReply
from korvet.spark.partitions import PartitionLog
from korvet.wire.records import Record
from korvet.wire.segments import AbortedRow

Change = Callable[[Any], Any]


class ColumnBatch(msgspec.Struct):
    """Records with one timestamp type. Columns that were not requested are None."""

    offsets: Any
    times: Any
    stamped: bool
    keys: Any = None
    values: Any = None
    headers: Any = None

    def in_range(self, start: int, end: int) -> "ColumnBatch":
        """Return the records from `start` up to `end` (exclusive); offsets must ascend."""
        offsets = self.offsets
        if not len(offsets) or (offsets[0] >= start and offsets[-1] < end):
            return self
        wanted = slice(*(int(np.searchsorted(offsets, each)) for each in (start, end)))
        return self._map_columns(lambda numbers: numbers[wanted], lambda column: column[wanted])

    def where(self, wanted: Any) -> "ColumnBatch":
        """Return the records selected by the mask. Columns must be Arrow arrays."""
        mask = pa.array(wanted)
        return self._map_columns(
            lambda numbers: numbers[wanted], lambda column: column.filter(mask)
        )

    def sorted_by_offset(self) -> "ColumnBatch":
        """Return the records sorted by offset. Columns must be Arrow arrays."""
        order = np.argsort(self.offsets)
        places = arrow.to_arrow(order)
        return self._map_columns(lambda numbers: numbers[order], lambda column: column.take(places))

    def _map_columns(self, numbers: Change, column: Change) -> "ColumnBatch":
        column_set = (self.keys, self.values, self.headers)
        columns = (None if each is None else column(each) for each in column_set)
        return ColumnBatch(numbers(self.offsets), numbers(self.times), self.stamped, *columns)


def concat_batches(parts: Sequence[ColumnBatch]) -> ColumnBatch:
    """Concatenate batches with the same columns."""
    if len(parts) == 1:
        return parts[0]

    def join(columns: Sequence[Any]) -> Any:
        if columns[0] is None:
            return None
        if isinstance(columns[0], list):
            return [each for column in columns for each in column]
        return pa.concat_arrays(columns)

    return ColumnBatch(
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.times for part in parts]),
        parts[0].stamped,
        join([part.keys for part in parts]),
        join([part.values for part in parts]),
        join([part.headers for part in parts]),
    )


def batch_from_records(
    rows: Sequence[Record], names: Container[str], *, shift: int, stamped: bool
) -> ColumnBatch:
    """Build a batch with these columns from decoded records; add `shift` to each offset."""
    offsets, times, keys, values, headers = zip(*rows, strict=True)
    part = ColumnBatch(
        np.array(offsets, dtype=np.int64) + shift, np.array(times, dtype=np.int64), stamped
    )
    if "key" in names:
        part.keys = pa.array(keys, pa.binary())
    if "value" in names:
        part.values = pa.array(values, pa.binary())
    if "headers" in names:
        # As Spark's Kafka source returns them: null if there are none.
        part.headers = [[{"key": k, "value": v} for k, v in each] or None for each in headers]
    return part


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
