"""Entries to Arrow: what XRANGE answered becomes a record batch with the columns asked for.

Rules
- Only the columns asked for are built.
- Transaction markers are no records. A committed read also leaves out what a transaction wrote
  that was aborted.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from korvet.spark import arrays
from korvet.spark.aborted import Aborted
from korvet.spark.batch_layout import BatchLayout
from korvet.spark.catalog import Range
from korvet.spark.columns import APPEND_TIME, CREATE_TIME
from korvet.spark.parts import Part
from korvet.spark.record_layout import RecordLayout
from korvet.spark.replies import Reply

_TO_MICROS = 1000
NUMBERED = frozenset({"topic", "partition", "offset"})
"""Columns that an offset alone says."""
NUMBERED_ROWS = 1 << 16


class Decoder:
    """Decodes the entries of one range into record batches of one schema."""

    def __init__(self, wanted: Range, schema: Any, aborted: Sequence[Aborted] = ()) -> None:
        self._log = wanted.log
        self._start, self._end = wanted.start, wanted.end
        self._schema = schema
        self._batches = BatchLayout(wanted.log, schema, aborted)
        self._records = RecordLayout(wanted.log, schema, aborted)

    def decode(self, reply: Reply) -> Iterator[Any]:
        """The records of these entries that lie in the range, as record batches."""
        is_batch = self._log.is_batch
        parts = self._batches.parts(reply.rows) if is_batch else self._records.parts(reply)
        for part in parts:
            within = part.between(self._start, self._end)
            if len(within.offsets):
                yield self._assemble(within)

    def numbered(self, known: Range) -> Iterator[Any]:
        """Record batches of a range that has a record at every offset, of NUMBERED columns."""
        for start in range(known.start, known.end, NUMBERED_ROWS):
            offsets = np.arange(start, min(start + NUMBERED_ROWS, known.end), dtype=np.int64)
            yield self._assemble(Part(offsets, None, False))

    def _assemble(self, part: Part) -> Any:
        count = len(part.offsets)
        build: dict[str, Callable[[Any], Any]] = {
            "key": lambda _: part.keys,
            "value": lambda _: part.values,
            "topic": lambda _: arrays.same_text(self._log.topic, count),
            "partition": lambda type_: arrays.same(self._log.partition, count, type_),
            "offset": lambda type_: arrays.of(part.offsets, type_),
            "timestamp": lambda type_: arrays.of(part.times * _TO_MICROS, type_),
            "timestampType": lambda type_: arrays.same(
                APPEND_TIME if part.stamped else CREATE_TIME, count, type_
            ),
            "headers": lambda type_: (
                part.headers
                if isinstance(part.headers, pa.Array)
                else pa.array(part.headers, type_)
            ),
        }
        columns = [build[field.name](field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
