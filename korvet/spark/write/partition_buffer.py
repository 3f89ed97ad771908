"""Collect the records of one partition into batches of bounded size."""

from dataclasses import dataclass, replace

import numpy as np

from korvet.log.layouts import layout_of
from korvet.scripts.producer_state import WRAP
from korvet.spark.write.record_block import RecordBlock
from korvet.topics.table import Topic

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
        self._most = BATCH_RECORDS if holds_batches else min(CALL_RECORDS, BATCH_RECORDS)
        self._held: RecordBlock | None = None
        self.size = 0
        """Buffered bytes."""
        self.sequence = 0

    def add(self, found: RecordBlock) -> list[NumberedBatch]:
        """Add records and return the full batches."""
        whole = found if self._held is None else RecordBlock.concat([self._held, found])
        bytes_to = np.concatenate([[0], np.cumsum(whole.record_sizes())])
        full, at = [], 0
        while True:
            fits = int(np.searchsorted(bytes_to, bytes_to[at] + self._limit, side="right")) - 1
            end = min(max(fits, at + 1), at + self._most)
            if end >= len(whole):
                break
            full.append(self._numbered(whole.slice(at, end), int(bytes_to[end] - bytes_to[at])))
            at = end
        self._held = whole.slice(at, len(whole)).copy() if at else whole
        self.size = int(bytes_to[-1] - bytes_to[at])
        return full

    def rest(self) -> list[NumberedBatch]:
        """Return the buffered records as at most one batch, and empty the buffer."""
        waits, size = self._held, self.size
        self._held, self.size = None, 0
        return [self._numbered(waits, size)] if waits is not None else []

    def _numbered(self, records: RecordBlock, size: int) -> NumberedBatch:
        first = self.sequence
        self.sequence = (first + len(records)) % WRAP
        return NumberedBatch(self.topic, self.partition, records, first, size)
