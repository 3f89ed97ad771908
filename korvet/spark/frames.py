"""The rows to write, in Arrow: which topic and partition each goes to, and as what record.

Rules
- As Kafka's sink: option `topic` wins over column `topic`, column `partition` over the key's hash.
- A row without a key goes where the rows near it go: runs of RUN rows take the partitions in turn,
  beginning with the turn of the task in its epoch. Nothing is drawn by lot, so a task that runs
  again sends every row to the same place.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from korvet.spark import arrays
from korvet.spark.block import Block
from korvet.spark.errors import BadFrame
from korvet.spark.hashing import partitions_of
from korvet.spark.options import WriteOptions
from korvet.topics.table import Topic
from korvet.wire.records import Headers

RUN = 500
PART_BYTES = 4 << 20
"""Of so many bytes at a time there are copies; a batch of Spark's may hold 64 MiB."""


def parts(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, large ones in parts of about PART_BYTES."""
    for batch in batches:
        count = max(1, -(-batch.nbytes // PART_BYTES))
        step = max(1, -(-batch.num_rows // count))
        for first in range(0, batch.num_rows, step):
            yield batch.slice(first, step)
        del batch


class Rows:
    """One Arrow batch of a task, as records."""

    def __init__(self, batch: Any, options: WriteOptions, now_ms: int) -> None:
        self._columns = {name.lower(): batch.column(n) for n, name in enumerate(batch.schema.names)}
        self._options = options
        self._count = batch.num_rows
        self._now_ms = now_ms

    def by_topic(self) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
        """Each topic's rows."""
        if self._options.topic is not None:
            yield self._options.topic, np.arange(self._count)
            return
        column = self._columns["topic"]
        if column.null_count:
            raise BadFrame("A row has no topic: column 'topic' is null, and there is no option.")
        for name in sorted(pc.unique(column).to_pylist()):
            yield name, np.flatnonzero(pc.equal(column, name).to_numpy(zero_copy_only=False))

    def partitions(
        self, rows: npt.NDArray[np.int64], topic: Topic, spread: int, turn: int, seen: int
    ) -> npt.NDArray[np.int64]:
        """The partition of each of the rows, one of the first `spread` where a row does not say;
        `seen` rows without a key came before."""
        key = self._columns.get("key")
        if key is None or pa.types.is_null(key.type):
            chosen = _in_turn(len(rows), spread, turn, seen)
        else:
            chosen = self._hashed(key.take(arrays.of(rows)), spread, turn, seen)
        asked = self._columns.get("partition")
        if asked is not None and not pa.types.is_null(asked.type):
            mine = asked.take(arrays.of(rows))
            named = pc.fill_null(mine, -1).to_numpy().astype(np.int64)
            valid = mine.is_valid().to_numpy(zero_copy_only=False)
            wrong = valid & ((named < 0) | (named >= topic.partitions))
            if wrong.any():
                raise BadFrame(
                    f"Topic {topic.name!r} has {topic.partitions} partitions; a row asks for "
                    f"partition {named[wrong][0]}."
                )
            chosen = np.where(valid, named, chosen)
        return chosen

    def unkeyed(self, rows: npt.NDArray[np.int64]) -> int:
        """How many of the rows have no key."""
        key = self._columns.get("key")
        if key is None or pa.types.is_null(key.type):
            return len(rows)
        if not key.null_count:
            return 0
        return int(key.take(arrays.of(rows)).null_count)

    def block(self, rows: npt.NDArray[np.int64]) -> Block:
        """The rows as records; their offsets are not known yet."""
        index = arrays.of(rows)
        return Block(
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
            raise BadFrame(
                "Column 'headers': a header is null, or has no key; only values may be null."
            )
        found = [[(pair["key"], pair["value"]) for pair in pairs or ()] for pairs in rows]
        return found if any(found) else None

    def _times(self, index: Any, count: int) -> Any:
        if not self._options.timestamps:
            return arrays.same(self._now_ms, count, pa.int64())
        micros = self._columns["timestamp"].take(index).cast(pa.int64())
        return pc.fill_null(pc.divide(micros, 1000), self._now_ms)

    def _hashed(self, key: Any, partitions: int, turn: int, seen: int) -> npt.NDArray[np.int64]:
        if not pa.types.is_binary(key.type):
            key = key.cast(pa.binary())
        none = arrays.nulls(key)
        filled = pc.fill_null(key, b"") if key.null_count else key
        data = filled.buffers()[2]
        body = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
        chosen = partitions_of(arrays.edges(filled).astype(np.int64), body, partitions)
        if key.null_count:
            chosen[none] = _in_turn(int(none.sum()), partitions, turn, seen)
        return chosen


def _in_turn(count: int, partitions: int, turn: int, seen: int) -> npt.NDArray[np.int64]:
    turns: npt.NDArray[np.int64] = (np.arange(seen, seen + count) // RUN + turn) % partitions
    return turns
