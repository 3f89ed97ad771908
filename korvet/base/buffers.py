"""Buffers that are used again and again, and freed memory that stays.

A fresh buffer costs a page fault per 4 KiB and is in no processor cache; a fresh bytearray is also
filled with zeros. malloc gives freed memory back otherwise, and fresh pages cost time.
"""

import ctypes
import mmap
import sys
import threading
from functools import cache

UNIT = 256 * 1024
"""Sizes of buffers are multiples of this."""
LARGEST = 2 << 20
"""Bytes of the largest read that gets a buffer of the pool."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MAX_HEAP = 32 << 20
"""The highest value that glibc takes for the size from which on a block is mapped by itself."""
PADDING = bytes(64)
"""Bytes after the records, so that a reader may look at a whole varint."""
CAPACITY = 1 << 20
"""Max bytes of records in the threads' buffers. Other batches get a buffer each."""


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


class WorkBuffer:
    """Memory for a produced batch's decompressed records while they are checked, and its address.

    Padding follows the records.
    """

    def __init__(self, capacity: int, memory: bytearray | mmap.mmap | None = None) -> None:
        self.memory = bytearray(capacity + len(PADDING)) if memory is None else memory
        self.room = memoryview(self.memory)[:capacity]
        """Where the records are written, from the start on."""
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def take(self, records: bytes | bytearray | memoryview) -> int:
        """Return the address of the records, copied here if need be and followed by padding."""
        size = len(records)
        if type(records) is not memoryview or records.obj is not self.memory:
            self.memory[:size] = records
        self.memory[size : size + len(PADDING)] = PADDING
        return self.address


class _OfThread(threading.local):
    """The thread's buffer for records, whose content is valid until it opens the next batch.

    A thread that opens large batches takes one large buffer for them. Its pages get memory when
    they are written, so its size may be that of the largest batch allowed.
    """

    def __init__(self) -> None:
        self.buffer = WorkBuffer(CAPACITY)
        self.takes_large = False
        self.large: WorkBuffer | None = None


_of_thread = _OfThread()


def work_buffer(size: int = 0) -> WorkBuffer:
    """Return the thread's buffer, or another one for records of more than CAPACITY bytes."""
    if size <= CAPACITY:
        return _of_thread.buffer
    if not _of_thread.takes_large:
        return WorkBuffer(size)
    large = _of_thread.large
    if large is None or len(large.room) < size:
        large = _of_thread.large = WorkBuffer(size, mmap.mmap(-1, size + len(PADDING)))
    return large


def has_room(size: int) -> bool:
    """Return whether the thread keeps a buffer for that many bytes."""
    return size <= CAPACITY or _of_thread.takes_large


def keep_large() -> None:
    """Let this thread use one large buffer for all batches, until `free_large`."""
    _of_thread.takes_large = True


def free_large() -> None:
    """Free the thread's large buffer; the next large batch makes another."""
    _of_thread.large = None
