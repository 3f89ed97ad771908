"""Decode the entries of an XRANGE reply into Arrow record batches.

Rules
- Build only the requested columns.
- Leave out transaction markers, and in a committed read the records of aborted transactions.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from korvet.spark import arrow
from korvet.spark.columns import APPEND_TIME, CREATE_TIME
from korvet.spark.decode.batch_decoder import BatchDecoder
from korvet.spark.decode.layout_decoder import ColumnBatch, LayoutDecoder
from korvet.spark.decode.record_decoder import RecordDecoder
from korvet.spark.decode.xrange_reply import XRangeReply
from korvet.spark.partitions import OffsetRange, PartitionLog
from korvet.wire.segments import AbortedRow

_TO_MICROS = 1000
OFFSET_COLUMNS = frozenset({"topic", "partition", "offset"})
"""Columns that can be built from offsets alone."""
OFFSET_BATCH_ROWS = 1 << 16


def decoder_of(log: PartitionLog) -> type[LayoutDecoder]:
    """Return the decoder of the log's layout."""
    return BatchDecoder if log.is_batch else RecordDecoder


class Decoder:
    """Decodes the entries of one range into record batches with one schema."""

    def __init__(
        self, wanted: OffsetRange, schema: Any, aborted: Sequence[AbortedRow] = ()
    ) -> None:
        self._log = wanted.log
        self._start, self._end = wanted.start, wanted.end
        self._schema = schema
        self._layout = decoder_of(wanted.log)(wanted.log, schema, aborted)

    def decode(self, reply: XRangeReply) -> Iterator[Any]:
        """Yield the records of the reply that are in the range, as record batches."""
        for part in self._layout.parts(reply):
            within = part.in_range(self._start, self._end)
            if len(within.offsets):
                yield self._assemble(within)

    def offset_batches(self, dense: OffsetRange) -> Iterator[Any]:
        """Yield OFFSET_COLUMNS of a range that has a record at every offset."""
        for start in range(dense.start, dense.end, OFFSET_BATCH_ROWS):
            offsets = np.arange(start, min(start + OFFSET_BATCH_ROWS, dense.end), dtype=np.int64)
            yield self._assemble(ColumnBatch(offsets, None, False))

    def _assemble(self, part: ColumnBatch) -> Any:
        count = len(part.offsets)
        build: dict[str, Callable[[Any], Any]] = {
            "key": lambda _: part.keys,
            "value": lambda _: part.values,
            "topic": lambda _: arrow.repeat_text(self._log.topic, count),
            "partition": lambda type_: arrow.repeat_number(self._log.partition, count, type_),
            "offset": lambda type_: arrow.to_arrow(part.offsets, type_),
            "timestamp": lambda type_: arrow.to_arrow(part.times * _TO_MICROS, type_),
            "timestampType": lambda type_: arrow.repeat_number(
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
