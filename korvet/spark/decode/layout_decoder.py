"""The interface of the decoders: one for each layout."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from korvet.log.entry_id import OffsetMap
from korvet.spark.decode.aborted_transactions import AbortedIndex
from korvet.spark.decode.column_batch import ColumnBatch
from korvet.spark.decode.xrange_reply import XRangeReply
from korvet.spark.partitions import PartitionLog
from korvet.wire.segments import AbortedRow

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
