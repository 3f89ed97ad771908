"""Records on their way into one partition, column by column.

They stay Arrow arrays up to the call that appends them, where they can: layout `record` takes plain
ones as columns, one argument for all values of a field. What needs a record at a time (batches,
headers, compression at rest) gets records then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from korvet.scripts.call import Arg
from korvet.spark import arrays
from korvet.wire import record_entries
from korvet.wire.records import Headers, Record

Ints = npt.NDArray[np.int64]
_COLUMNS = b"columns"


@dataclass(frozen=True, slots=True)
class Block:
    """Some records in order; `headers` is None where none of them has any."""

    times: Any
    keys: Any
    values: Any
    headers: list[Headers] | None = None

    def __len__(self) -> int:
        return len(self.times)

    def arrays(self) -> tuple[Any, Any, Any]:
        """Times, keys, values."""
        return self.times, self.keys, self.values

    @classmethod
    def joined(cls, blocks: Sequence["Block"]) -> "Block":
        """The records of all the blocks, in order."""
        if len(blocks) == 1:
            return blocks[0]
        headers = None
        if any(block.headers is not None for block in blocks):
            headers = [each for block in blocks for each in block.headers or [[]] * len(block)]
        times, keys, values = zip(*(block.arrays() for block in blocks), strict=True)
        joined = pa.concat_arrays
        return cls(joined(times), joined(keys), joined(values), headers)

    def cut(self, low: int, high: int) -> "Block":
        """Those from `low` on, before `high`."""
        times, keys, values = (column.slice(low, high - low) for column in self.arrays())
        headers = None if self.headers is None else self.headers[low:high]
        return Block(times, keys, values, headers)

    def alone(self) -> "Block":
        """The same records, in memory of their own: a cut keeps all that it was cut from."""
        times, keys, values = (pa.concat_arrays([column]) for column in self.arrays())
        return Block(times, keys, values, self.headers)

    def sizes(self) -> Ints:
        """How many bytes each record counts for."""
        found: Ints = (
            arrays.lengths(self.keys) + arrays.lengths(self.values) + record_entries.OVERHEAD
        )
        if self.headers is not None:
            found = found + np.array([sum(map(_header_size, each)) for each in self.headers])
        return found

    def moments(self) -> tuple[int, int, int]:
        """The least timestamp, the least that is none of a record without (-1), the greatest."""
        found = arrays.numbers(self.times)
        low, high = int(found.min()), int(found.max())
        return low, low if low >= 0 else int(found[found >= 0].min(initial=high)), high

    def records(self) -> list[Record]:
        """The records, numbered from 0."""
        columns = (column.to_pylist() for column in self.arrays())
        headers = [[]] * len(self) if self.headers is None else self.headers
        return list(zip(range(len(self)), *columns, headers, strict=True))

    def columns(self, longest: int | None) -> list[Arg] | None:
        """These as log.append's columns; None for what goes record by record: headers, nulls, and
        values over `longest` bytes."""
        keyless = self.keys.null_count == len(self)
        plain = self.headers is None and not self.values.null_count
        if not plain or (self.keys.null_count and not keyless):
            return None
        if longest is not None and arrays.lengths(self.values).max() > longest:
            return None
        fields = [] if keyless else [*_column(b"key", self.keys)]
        fields += _column(b"value", self.values)
        fields += _column(b"timestamp", self.times.cast(pa.string()).cast(pa.binary()))
        return [_COLUMNS, len(fields) // 4, *fields]


def _header_size(header: tuple[str, bytes | None]) -> int:
    name, value = header
    return len(name.encode()) + len(value or b"")


def _column(name: bytes, column: Any) -> tuple[Arg, ...]:
    """One field's four arguments."""
    edges, data = arrays.edges(column), column.buffers()[2]
    lengths = np.diff(edges)
    values = b"" if data is None else memoryview(data)[edges[0] : edges[-1]]
    if (lengths == lengths[0]).all():
        return name, int(lengths[0]), b"", values
    wide = "u1" if lengths.max() < 256 else "<u4"
    return name, -1, lengths.astype(wide).tobytes(), values
