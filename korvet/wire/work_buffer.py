"""Hold a produced batch's decompressed records while they are checked.

Rules
- Each thread has one buffer, used again for each batch: fresh memory has to be mapped and cleared,
  and evicts other data from the processor's caches.
- Its content is valid until the thread opens the next batch.
- A thread that opens large batches takes one large buffer for them. Its pages get memory when they
  are written, so its size may be that of the largest batch allowed.
"""

import ctypes
import mmap
import threading

PADDING = bytes(64)
"""Bytes after the records, so that a reader may look at a whole varint."""
CAPACITY = 1 << 20
"""Max bytes of records in the threads' buffers. Other batches get a buffer each."""


class WorkBuffer:
    """Memory for records and the padding after them, with its address."""

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
