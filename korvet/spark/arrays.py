"""Numbers and constants as Arrow arrays, and numbers back, over the same memory.

`pa.array`, `pa.scalar` and `to_numpy` import pandas to see whether they are given something of it:
a quarter of a second of CPU in each new process of Spark's, which else never needs it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


def of(numbers: npt.NDArray[Any], type_: Any = None) -> Any:
    """The numbers as an array of the type, which has their width; int64 if none is named."""
    held = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(type_ or pa.int64(), len(held), [None, pa.py_buffer(held)])


def same(number: int, count: int, type_: Any) -> Any:
    """The number so many times, as an array of the type."""
    return of(np.full(count, number, dtype=f"i{type_.bit_width // 8}"), type_)


def same_text(text: str, count: int) -> Any:
    """The text so many times."""
    raw = text.encode()
    ends = np.arange(0, (count + 1) * len(raw), len(raw), dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(raw * count)]
    )


def cut(data: Any, starts: Ints, ends: Ints, type_: Any) -> Any:
    """What stands between these places of some bytes, which ascend, as an array of bytes or text.

    The bytes are seen as an array of what is wanted and what is between; every second is taken.
    Where all are equally long no `pyarrow.compute` is needed for it, whose import takes 25 ms.
    """
    count = len(starts)
    length = int(ends[0] - starts[0]) if count else 0
    if length and (ends - starts == length).all():
        raw = np.frombuffer(data, dtype=np.uint8)
        held = np.lib.stride_tricks.sliding_window_view(raw, length)[starts]
        edges = np.arange(0, (count + 1) * length, length, dtype=np.int32)
        return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(edges), pa.py_buffer(held)])
    both = np.empty(2 * count + 1, dtype=np.int32)
    both[0:-1:2] = starts
    both[1::2] = ends
    both[-1] = both[-2] if count else 0
    between = pa.Array.from_buffers(
        type_, 2 * count, [None, pa.py_buffer(both), pa.py_buffer(data)]
    )
    return between.take(of(np.arange(0, 2 * count, 2)))


def numbers(array: Any) -> Ints:
    """The numbers of an int64 array without nulls."""
    found: Ints = np.frombuffer(array.buffers()[1], dtype=np.int64)
    return found[array.offset : array.offset + len(array)]


def lengths(column: Any) -> Ints:
    """How many bytes each value of a binary array has; none where it is null."""
    if column.null_count == len(column):
        return np.zeros(len(column), dtype=np.int64)
    found = np.diff(edges(column)).astype(np.int64)
    if column.null_count:
        found[nulls(column)] = 0
    return found


def edges(column: Any) -> npt.NDArray[np.int32]:
    """Where each value of a binary array begins in its data, and where the last ends."""
    found: npt.NDArray[np.int32] = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return found[column.offset : column.offset + len(column) + 1]


def nulls(column: Any) -> npt.NDArray[np.bool_]:
    """Where an array is null."""
    valid = column.buffers()[0]
    if valid is None:
        return np.zeros(len(column), dtype=bool)
    bits = np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little")
    found: npt.NDArray[np.bool_] = bits[column.offset : column.offset + len(column)] == 0
    return found
