"""Some records, column by column, on their way to a record batch."""

from collections.abc import Callable, Container, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from korvet.spark import arrays
from korvet.wire.records import Record

Change = Callable[[Any], Any]


class Part(msgspec.Struct):
    """Records of one kind of timestamp. `keys` and the like are None where nobody asked."""

    offsets: Any
    times: Any
    stamped: bool
    keys: Any = None
    values: Any = None
    headers: Any = None

    def between(self, start: int, end: int) -> "Part":
        """The records from `start` on and before `end`; they are in the order of their offsets."""
        offsets = self.offsets
        if not len(offsets) or (offsets[0] >= start and offsets[-1] < end):
            return self
        wanted = slice(*(int(np.searchsorted(offsets, each)) for each in (start, end)))
        return self._changed(lambda numbers: numbers[wanted], lambda column: column[wanted])

    def where(self, wanted: Any) -> "Part":
        """The records where the mask says so. Columns have to be Arrow's."""
        mask = pa.array(wanted)
        return self._changed(lambda numbers: numbers[wanted], lambda column: column.filter(mask))

    def in_order(self) -> "Part":
        """The records in the order of their offsets. Columns have to be Arrow's."""
        order = np.argsort(self.offsets)
        places = arrays.of(order)
        return self._changed(lambda numbers: numbers[order], lambda column: column.take(places))

    def _changed(self, numbers: Change, column: Change) -> "Part":
        held = (self.keys, self.values, self.headers)
        columns = (None if each is None else column(each) for each in held)
        return Part(numbers(self.offsets), numbers(self.times), self.stamped, *columns)


def joined(parts: Sequence[Part]) -> Part:
    """The records of all the parts, which have the same columns, in order."""
    if len(parts) == 1:
        return parts[0]

    def join(columns: Sequence[Any]) -> Any:
        if columns[0] is None:
            return None
        if isinstance(columns[0], list):
            return [each for column in columns for each in column]
        return pa.concat_arrays(columns)

    return Part(
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.times for part in parts]),
        parts[0].stamped,
        join([part.keys for part in parts]),
        join([part.values for part in parts]),
        join([part.headers for part in parts]),
    )


def listed(rows: Sequence[Record], names: Container[str], *, shift: int, stamped: bool) -> Part:
    """Records that were read one by one, with the columns of these names; `shift` is added to each
    offset."""
    offsets, times, keys, values, headers = zip(*rows, strict=True)
    part = Part(np.array(offsets, dtype=np.int64) + shift, np.array(times, dtype=np.int64), stamped)
    if "key" in names:
        part.keys = pa.array(keys, pa.binary())
    if "value" in names:
        part.values = pa.array(values, pa.binary())
    if "headers" in names:
        part.headers = [_pairs(each) for each in headers]
    return part


def _pairs(headers: Sequence[tuple[str, bytes | None]]) -> list[dict[str, Any]] | None:
    """Headers as Spark's Kafka source has them: null where there is none."""
    return [{"key": name, "value": value} for name, value in headers] or None
