"""Convert the rows of a task to records and select their topic and partition.

Rules
- Like Kafka's sink: option `topic` wins over column `topic`, column `partition` over the key hash.
- Rows without a key go round-robin in runs of UNKEYED_RUN rows. The first partition depends on task
  and epoch only, so a repeated task sends every row to the same partition.
- Rows with a key go to the partition that Kafka's clients choose, by the murmur2 of
  org.apache.kafka.common.utils.Utils. Keys of equal length are hashed together, word by word.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from korvet.spark import arrow
from korvet.spark.errors import InvalidDataFrame
from korvet.spark.options import WriteOptions
from korvet.spark.write.record_block import RecordBlock
from korvet.topics.table import Topic
from korvet.wire.records import Headers

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)

STEP_BYTES = 1 << 20
"""Max bytes of keys to hash at once; hashing needs eight times the memory."""

Hashes = npt.NDArray[np.uint32]


def partition_keys(
    ends: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], count: int
) -> npt.NDArray[np.int64]:
    """Return the partition of each key, out of `count`; key i is data[ends[i]:ends[i + 1]]."""
    starts, lengths = ends[:-1], np.diff(ends)
    chosen = np.empty(len(lengths), dtype=np.int64)
    for length in np.unique(lengths):
        equal = np.flatnonzero(lengths == length)
        max_keys = max(1, STEP_BYTES // max(1, int(length)))
        for rows in np.split(equal, range(max_keys, len(equal), max_keys)):
            keys = data[starts[rows, None] + np.arange(length)]
            hashes = murmur2(np.ascontiguousarray(keys))
            chosen[rows] = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    return chosen


def murmur2(keys: npt.NDArray[np.uint8]) -> Hashes:
    """Return the hash of each row; all keys have the same length."""
    count, length = keys.shape
    whole = length // 4
    words = keys[:, : whole * 4].copy().view("<u4") if whole else np.empty((count, 0), "<u4")
    hashes: Hashes = np.full(count, _SEED ^ np.uint32(length), dtype=np.uint32)
    for n in range(whole):
        mixed = words[:, n] * _M
        mixed ^= mixed >> _R
        mixed *= _M
        hashes = hashes * _M ^ mixed
    tail = keys[:, whole * 4 :]
    for n in reversed(range(tail.shape[1])):
        hashes ^= tail[:, n].astype(np.uint32) << np.uint32(8 * n)
    if tail.shape[1]:
        hashes *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


UNKEYED_RUN = 500
MAX_BATCH_BYTES = 4 << 20
"""Max bytes of a batch that are copied at once: a batch of Spark may have 64 MiB."""


def split_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches, large ones in slices of about MAX_BATCH_BYTES."""
    for batch in batches:
        count = max(1, -(-batch.nbytes // MAX_BATCH_BYTES))
        step = max(1, -(-batch.num_rows // count))
        for first in range(0, batch.num_rows, step):
            yield batch.slice(first, step)
        del batch


class RowRouter:
    """The rows of one Arrow batch."""

    def __init__(self, batch: Any, options: WriteOptions, now_ms: int) -> None:
        self._columns = {name.lower(): batch.column(n) for n, name in enumerate(batch.schema.names)}
        self._options = options
        self._count = batch.num_rows
        self._now_ms = now_ms

    def rows_by_topic(self) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
        """Yield each topic with the indexes of its rows."""
        if self._options.topic is not None:
            yield self._options.topic, np.arange(self._count)
            return
        column = self._columns["topic"]
        if column.null_count:
            raise InvalidDataFrame(
                "A row has no topic: column 'topic' is null and option 'topic' is not set."
            )
        for name in sorted(pc.unique(column).to_pylist()):
            yield name, np.flatnonzero(pc.equal(column, name).to_numpy(zero_copy_only=False))

    def partitions(
        self, rows: npt.NDArray[np.int64], topic: Topic, spread: int, turn: int, seen: int
    ) -> npt.NDArray[np.int64]:
        """Return the partition of each row: one of the first `spread` unless the row names one.

        `seen` is the number of earlier rows without a key.
        """
        key = self._columns.get("key")
        if key is None or pa.types.is_null(key.type):
            chosen = _round_robin(len(rows), spread, turn, seen)
        else:
            chosen = self._hash_keys(key.take(arrow.to_arrow(rows)), spread, turn, seen)
        asked = self._columns.get("partition")
        if asked is not None and not pa.types.is_null(asked.type):
            mine = asked.take(arrow.to_arrow(rows))
            named = pc.fill_null(mine, -1).to_numpy().astype(np.int64)
            valid = mine.is_valid().to_numpy(zero_copy_only=False)
            wrong = valid & ((named < 0) | (named >= topic.partitions))
            if wrong.any():
                raise InvalidDataFrame(
                    f"Topic {topic.name!r} has {topic.partitions} partitions; a row asks for "
                    f"partition {named[wrong][0]}."
                )
            chosen = np.where(valid, named, chosen)
        return chosen

    def unkeyed(self, rows: npt.NDArray[np.int64]) -> int:
        """Return how many of the rows have no key."""
        key = self._columns.get("key")
        if key is None or pa.types.is_null(key.type):
            return len(rows)
        if not key.null_count:
            return 0
        return int(key.take(arrow.to_arrow(rows)).null_count)

    def block(self, rows: npt.NDArray[np.int64]) -> RecordBlock:
        """Return the rows as records."""
        index = arrow.to_arrow(rows)
        return RecordBlock(
            self._times(index, len(rows)),
            self._bytes("key", index, len(rows)),
            self._bytes("value", index, len(rows)),
            self._headers(index),
        )

    def _bytes(self, name: str, index: Any, count: int) -> Any:
        column = self._columns.get(name)
        if column is None or pa.types.is_null(column.type):
            return pa.nulls(count, pa.binary())
        if not pa.types.is_binary(column.type):
            column = column.cast(pa.binary())
        return column.take(index)

    def _headers(self, index: Any) -> list[Headers] | None:
        column = self._columns.get("headers")
        if column is None or not self._options.headers or pa.types.is_null(column.type):
            return None
        rows = column.take(index).to_pylist()
        if any(pair is None or pair["key"] is None for pairs in rows for pair in pairs or ()):
            raise InvalidDataFrame(
                "Column 'headers': a header or its key is null; only values may be null."
            )
        found = [[(pair["key"], pair["value"]) for pair in pairs or ()] for pairs in rows]
        return found if any(found) else None

    def _times(self, index: Any, count: int) -> Any:
        if not self._options.timestamps:
            return arrow.repeat_number(self._now_ms, count, pa.int64())
        micros = self._columns["timestamp"].take(index).cast(pa.int64())
        return pc.fill_null(pc.divide(micros, 1000), self._now_ms)

    def _hash_keys(self, key: Any, partitions: int, turn: int, seen: int) -> npt.NDArray[np.int64]:
        if not pa.types.is_binary(key.type):
            key = key.cast(pa.binary())
        none = arrow.null_mask(key)
        filled = pc.fill_null(key, b"") if key.null_count else key
        data = filled.buffers()[2]
        body = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
        chosen = partition_keys(arrow.value_offsets(filled).astype(np.int64), body, partitions)
        if key.null_count:
            chosen[none] = _round_robin(int(none.sum()), partitions, turn, seen)
        return chosen


def _round_robin(count: int, partitions: int, turn: int, seen: int) -> npt.NDArray[np.int64]:
    turns: npt.NDArray[np.int64] = (
        np.arange(seen, seen + count) // UNKEYED_RUN + turn
    ) % partitions
    return turns
