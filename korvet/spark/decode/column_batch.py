"""Records as columns, before they become an Arrow record batch."""

from collections.abc import Callable, Container, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from korvet.spark import arrow
from korvet.wire.records import Record

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
