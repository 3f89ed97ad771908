"""Some records, column by column, on their way to a record batch."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from korvet.spark import arrays

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
