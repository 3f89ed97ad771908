"""Convert numbers and constants to Arrow arrays and back without copying.

`pa.array`, `pa.scalar` and `to_numpy` import pandas to check for its types: 0.25 s of CPU in each
new Python process of Spark, which otherwise does not need pandas.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


def to_arrow(numbers: npt.NDArray[Any], type_: Any = None) -> Any:
    """Return the numbers as an Arrow array of a type of the same width; default int64."""
    values = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(type_ or pa.int64(), len(values), [None, pa.py_buffer(values)])


def repeat_number(number: int, count: int, type_: Any) -> Any:
    """Return an Arrow array that repeats the number."""
    return to_arrow(np.full(count, number, dtype=f"i{type_.bit_width // 8}"), type_)


def repeat_text(text: str, count: int) -> Any:
    """Return an Arrow array that repeats the text."""
    raw = text.encode()
    ends = np.arange(0, (count + 1) * len(raw), len(raw), dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(raw * count)]
    )


def binary_array(data: Any, starts: Ints, ends: Ints, type_: Any) -> Any:
    """Return the bytes between starts and ends, both ascending, as an array of bytes or text.

    Views the data as an array of values alternating with the bytes between them, and takes every
    second element. Values of equal length avoid importing `pyarrow.compute`, which takes 25 ms.
    """
    count = len(starts)
    length = int(ends[0] - starts[0]) if count else 0
    if length and (ends - starts == length).all():
        raw = np.frombuffer(data, dtype=np.uint8)
        windows = np.lib.stride_tricks.sliding_window_view(raw, length)[starts]
        value_offsets = np.arange(0, (count + 1) * length, length, dtype=np.int32)
        return pa.Array.from_buffers(
            type_, count, [None, pa.py_buffer(value_offsets), pa.py_buffer(windows)]
        )
    both = np.empty(2 * count + 1, dtype=np.int32)
    both[0:-1:2] = starts
    both[1::2] = ends
    both[-1] = both[-2] if count else 0
    between = pa.Array.from_buffers(
        type_, 2 * count, [None, pa.py_buffer(both), pa.py_buffer(data)]
    )
    return between.take(to_arrow(np.arange(0, 2 * count, 2)))


def to_numpy(array: Any) -> Ints:
    """Return the numbers of an int64 array without nulls."""
    found: Ints = np.frombuffer(array.buffers()[1], dtype=np.int64)
    return found[array.offset : array.offset + len(array)]


def value_lengths(column: Any) -> Ints:
    """Return the length of each value of a binary array; 0 for null."""
    if column.null_count == len(column):
        return np.zeros(len(column), dtype=np.int64)
    found = np.diff(value_offsets(column)).astype(np.int64)
    if column.null_count:
        found[null_mask(column)] = 0
    return found


def value_offsets(column: Any) -> npt.NDArray[np.int32]:
    """Return where each value of a binary array starts in its data, and where the last ends."""
    found: npt.NDArray[np.int32] = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return found[column.offset : column.offset + len(column) + 1]


def null_mask(column: Any) -> npt.NDArray[np.bool_]:
    """Return which values are null."""
    valid = column.buffers()[0]
    if valid is None:
        return np.zeros(len(column), dtype=bool)
    bits = np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little")
    found: npt.NDArray[np.bool_] = bits[column.offset : column.offset + len(column)] == 0
    return found
