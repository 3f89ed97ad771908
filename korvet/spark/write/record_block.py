"""Records for one partition as Arrow columns.

Plain records stay Arrow arrays up to the append call: layout `record` takes one argument for all
values of a field. Batches, headers and compressed values need single records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from korvet.log.layouts import layout_of
from korvet.scripts.call import Arg
from korvet.scripts.producer_state import WRAP
from korvet.spark import arrow
from korvet.topics.table import Topic
from korvet.wire import record_entries
from korvet.wire.records import Headers, Record

Ints = npt.NDArray[np.int64]
_COLUMNS = b"columns"


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records in order. `headers` is None if no record has any."""

    times: Any
    keys: Any
    values: Any
    headers: list[Headers] | None = None

    def __len__(self) -> int:
        return len(self.times)

    def columns_only(self) -> tuple[Any, Any, Any]:
        """Return times, keys and values."""
        return self.times, self.keys, self.values

    @classmethod
    def concat(cls, blocks: Sequence["RecordBlock"]) -> "RecordBlock":
        """Concatenate blocks."""
        if len(blocks) == 1:
            return blocks[0]
        headers = None
        if any(block.headers is not None for block in blocks):
            headers = [each for block in blocks for each in block.headers or [[]] * len(block)]
        times, keys, values = zip(*(block.columns_only() for block in blocks), strict=True)
        concat = pa.concat_arrays
        return cls(concat(times), concat(keys), concat(values), headers)

    def slice(self, low: int, high: int) -> "RecordBlock":
        """Return the records from `low` up to `high` (exclusive)."""
        times, keys, values = (column.slice(low, high - low) for column in self.columns_only())
        headers = None if self.headers is None else self.headers[low:high]
        return RecordBlock(times, keys, values, headers)

    def copy(self) -> "RecordBlock":
        """Return a copy, so that a slice does not keep the memory of the whole block."""
        times, keys, values = (pa.concat_arrays([column]) for column in self.columns_only())
        return RecordBlock(times, keys, values, self.headers)

    def record_sizes(self) -> Ints:
        """Return the size in bytes that the log counts for each record."""
        found: Ints = (
            arrow.value_lengths(self.keys)
            + arrow.value_lengths(self.values)
            + record_entries.OVERHEAD
        )
        if self.headers is not None:
            found = found + np.array(
                [sum(len(n.encode()) + len(v or b"") for n, v in each) for each in self.headers]
            )
        return found

    def timestamp_range(self) -> tuple[int, int, int]:
        """Return the lowest timestamp, the lowest except -1 (none), and the highest."""
        found = arrow.to_numpy(self.times)
        low, high = int(found.min()), int(found.max())
        return low, low if low >= 0 else int(found[found >= 0].min(initial=high)), high

    def records(self) -> list[Record]:
        """Return the records, numbered from 0."""
        columns = (column.to_pylist() for column in self.columns_only())
        headers = [[]] * len(self) if self.headers is None else self.headers
        return list(zip(range(len(self)), *columns, headers, strict=True))

    def columns(self, longest: int | None) -> list[Arg] | None:
        """Return the columns argument of log.append.

        Returns None if the block needs single records: it has headers, nulls, or a value longer
        than `longest` bytes.
        """
        keyless = self.keys.null_count == len(self)
        plain = self.headers is None and not self.values.null_count
        if not plain or (self.keys.null_count and not keyless):
            return None
        if longest is not None and arrow.value_lengths(self.values).max() > longest:
            return None
        fields = [] if keyless else [*_column_argument(b"key", self.keys)]
        fields += _column_argument(b"value", self.values)
        fields += _column_argument(b"timestamp", self.times.cast(pa.string()).cast(pa.binary()))
        return [_COLUMNS, len(fields) // 4, *fields]


def _column_argument(name: bytes, column: Any) -> tuple[Arg, ...]:
    """Return the four arguments of one field."""
    edges, data = arrow.value_offsets(column), column.buffers()[2]
    lengths = np.diff(edges)
    values = b"" if data is None else memoryview(data)[edges[0] : edges[-1]]
    if (lengths == lengths[0]).all():
        return name, int(lengths[0]), b"", values
    wide = "u1" if lengths.max() < 256 else "<u4"
    return name, -1, lengths.astype(wide).tobytes(), values


BATCH_RECORDS = 4_000
CALL_RECORDS = 1_000
"""Max records per call in layout `record`: about 2 ms of Redis. Larger calls gain nothing."""
BATCH_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """Records for one partition, with the sequence number of the first."""

    topic: Topic
    partition: int
    records: RecordBlock
    sequence: int
    size: int
    """Bytes that the log counts."""

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.partition}"

    def slice(self, low: int, high: int) -> "NumberedBatch":
        """Return the records from `low` up to `high` (exclusive)."""
        records, sequence = self.records.slice(low, high), (self.sequence + low) % WRAP
        return replace(self, records=records, sequence=sequence)


class PartitionBuffer:
    """Buffers the records of one partition until a batch is full."""

    def __init__(self, topic: Topic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self._limit = max(1, min(BATCH_BYTES, topic.policy.max_message_bytes // 2))
        holds_batches = layout_of(topic).holds_batches
        self._max_records = BATCH_RECORDS if holds_batches else min(CALL_RECORDS, BATCH_RECORDS)
        self._waiting: RecordBlock | None = None
        self.size = 0
        """Buffered bytes."""
        self.sequence = 0

    def add(self, block: RecordBlock) -> list[NumberedBatch]:
        """Add records and return the full batches."""
        whole = block if self._waiting is None else RecordBlock.concat([self._waiting, block])
        bytes_to = np.concatenate([[0], np.cumsum(whole.record_sizes())])
        full, at = [], 0
        while True:
            fits = int(np.searchsorted(bytes_to, bytes_to[at] + self._limit, side="right")) - 1
            end = min(max(fits, at + 1), at + self._max_records)
            if end >= len(whole):
                break
            full.append(self._numbered(whole.slice(at, end), int(bytes_to[end] - bytes_to[at])))
            at = end
        self._waiting = whole.slice(at, len(whole)).copy() if at else whole
        self.size = int(bytes_to[-1] - bytes_to[at])
        return full

    def last_batches(self) -> list[NumberedBatch]:
        """Return the buffered records as at most one batch, and empty the buffer."""
        waits, size = self._waiting, self.size
        self._waiting, self.size = None, 0
        return [self._numbered(waits, size)] if waits is not None else []

    def _numbered(self, records: RecordBlock, size: int) -> NumberedBatch:
        first = self.sequence
        self.sequence = (first + len(records)) % WRAP
        return NumberedBatch(self.topic, self.partition, records, first, size)
