"""Buffers for large reads that are used again and again, and freed memory that stays.

A fresh buffer costs a page fault per 4 KiB and is in no processor cache; a fresh bytearray is also
filled with zeros. malloc gives freed memory back otherwise, and fresh pages cost time.
"""

import ctypes
import sys
from functools import cache

UNIT = 256 * 1024
"""Sizes of buffers are multiples of this."""
LARGEST = 2 << 20
"""Bytes of the largest read that gets a buffer of the pool."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MAX_HEAP = 32 << 20
"""The highest value that glibc takes for the size from which on a block is mapped by itself."""


class ReadBuffers:
    """Lends buffers, of at most `capacity` bytes. One thread uses it.

    Python itself counts the views of a bytearray: a buffer is lent again only without any.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Return that many writable bytes of any content, until all views of them are gone."""
        if size > LARGEST:
            return memoryview(bytearray(size))
        for buffer in self._buffers:
            if len(buffer) >= size and _is_free(buffer):
                return memoryview(buffer)[:size]
        taken = bytearray(max(1, -(-size // UNIT)) * UNIT)
        if self._size + len(taken) > self._capacity:
            self._drop_smaller(len(taken))
        if self._size + len(taken) <= self._capacity:
            self._size += len(taken)
            self._buffers.append(taken)
        return memoryview(taken)[:size]

    def _drop_smaller(self, size: int) -> None:
        """Drop free buffers that were too small for a read of that size."""
        self._buffers = [each for each in self._buffers if len(each) >= size or not _is_free(each)]
        self._size = sum(map(len, self._buffers))


def _is_free(buffer: bytearray) -> bool:
    """Return whether no view of the buffer exists: Python refuses to resize it else."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


@cache
def retain_freed(size: int) -> None:
    """Keep up to that many freed bytes, if malloc is glibc's."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, min(size // 2, _MAX_HEAP))
            mallopt(_M_TRIM_THRESHOLD, size)
