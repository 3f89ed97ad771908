"""Hold a produced batch's decompressed records while they are checked.

Rules
- Each thread has one buffer, used again for each batch: fresh memory has to be mapped and cleared,
  and evicts other data from the processor's caches.
- Its content is valid until the thread opens the next batch.
"""

import ctypes
import threading

PADDING = bytes(64)
"""Bytes after the records, so that a reader may look at a whole varint."""
CAPACITY = 1 << 20
"""Max bytes of records in the threads' buffers. Other batches get a buffer each."""


class WorkBuffer:
    """Memory for records and the padding after them, with its address."""

    def __init__(self, capacity: int) -> None:
        self.memory = bytearray(capacity + len(PADDING))
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


_of_thread = _OfThread()


def work_buffer(size: int = 0) -> WorkBuffer:
    """Return the thread's buffer, or a new one for records of more than CAPACITY bytes."""
    return _of_thread.buffer if size <= CAPACITY else WorkBuffer(size)
