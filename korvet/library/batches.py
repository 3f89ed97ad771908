"""Records into batches: the partition of each, and how many fit into one."""

from collections.abc import Iterable, Iterator
from random import randrange

from korvet.base.errors import ErrorCode
from korvet.base.late_import import aiokafka
from korvet.library.values import Record
from korvet.wire import batch_builder
from korvet.wire import records as wire
from korvet.wire.records import BadBatch

BATCH_RECORDS = 1000
BATCH_BYTES = 1 << 18
_RECORD_OVERHEAD, _HEADER_OVERHEAD = 40, 10
"""Most bytes a record and a header take in a batch, without keys, values and names."""


class Batcher:
    """Assigns records to partitions as Kafka's default partitioner does.

    Equal keys go to one partition; records without a key go to the partitions in turn, batch by
    batch, from a random one on.
    """

    def __init__(self) -> None:
        self._turn = randrange(1 << 16)

    def batches(
        self, records: Iterable[tuple[int | None, Record]], partitions: int, max_batch_bytes: int
    ) -> Iterator[tuple[int, list[Record]]]:
        """Yield (partition, batch) in an order that keeps each partition's records in sequence.

        Each record comes with its partition, or None for the partitioner's choice.
        """
        max_bytes = min(BATCH_BYTES, max_batch_bytes - wire.HEADER_SIZE)
        batches: dict[int, list[Record]] = {}
        sizes: dict[int, int] = {}
        for wanted, record in records:
            number = self._partition(wanted, record.key, partitions)
            size = size_of(record)
            batch = batches.get(number)
            if batch and (len(batch) >= BATCH_RECORDS or sizes[number] + size > max_bytes):
                yield number, batches.pop(number)
                self._turn += 1
            sizes[number] = size + (sizes[number] if number in batches else 0)
            batches.setdefault(number, []).append(record)
        self._turn += 1
        yield from batches.items()

    def _partition(self, wanted: int | None, key: bytes | None, partitions: int) -> int:
        if wanted is not None:
            return wanted
        if key is None:
            return self._turn % partitions
        return partition_of(key, partitions)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Kafka's default partitioner chooses it."""
    return int((aiokafka("partitioner").murmur2(key) & 0x7FFFFFFF) % partitions)


def size_of(record: Record) -> int:
    """Return the most bytes that a record adds to its batch."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.all_headers:
        size += _HEADER_OVERHEAD + len(name.encode()) + len(value or b"")
    return size


def encode_batch(
    records: Iterable[Record], now_ms: int, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytearray:
    """Build a v2 batch; `producer` is (id, epoch, sequence of the first record)."""
    rows: list[wire.Record] = []
    for record in records:
        timestamp = now_ms if record.timestamp_ms is None else record.timestamp_ms
        rows.append((len(rows), timestamp, record.key, record.value, record.all_headers))
    if not rows:
        raise BadBatch(ErrorCode.INVALID_RECORD, "A batch holds at least one record.")
    return batch_builder.build(rows, producer=producer)
