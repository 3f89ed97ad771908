"""Walk the record batches of contiguous bytes, as segments have them, without decoding records.

The bytes have the right checksums, but another program may have written them. Each walk raises
CorruptSegment at a batch whose length is negative, and struct.error at the start of a batch that is
cut: it ends in any case.
"""

import struct
from collections.abc import Iterator

from korvet.wire import records
from korvet.wire.records import BatchHeader, Buffer
from korvet.wire.segments import CorruptSegment

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_SPAN = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta of a batch."""
_COUNT = struct.Struct(">i")


def headers_in(batches: Buffer) -> Iterator[tuple[int, int, BatchHeader]]:
    """Yield position, size and header of each batch.

    Raises CorruptSegment where no whole batch begins: the bytes may not be verified.
    """
    at = 0
    while at < len(batches):
        if len(batches) - at < records.HEADER_SIZE:
            raise _corrupt(at)
        header = records.read_header(batches, at)
        size = header.length + records.LOG_OVERHEAD
        if size < records.HEADER_SIZE or at + size > len(batches) or header.magic != records.MAGIC:
            raise _corrupt(at)
        yield at, size, header
        at += size


def count_records(batches: Buffer) -> int:
    """Return how many records whole batches have, markers included."""
    at = count = 0
    while at < len(batches):
        count += _COUNT.unpack_from(batches, at + records.HEADER_SIZE - _COUNT.size)[0]
        length = _OFFSET_AND_LENGTH.unpack_from(batches, at)[1]
        if length < 0:
            raise _corrupt(at)
        at += length + records.LOG_OVERHEAD
    return count


def skip_batches(batches: Buffer, offset: int) -> int:
    """Return where the first batch begins that does not end below the offset."""
    at = 0
    while at < len(batches):
        base, length, delta = _SPAN.unpack_from(batches, at)
        if base + delta >= offset:
            break
        if length < 0:
            raise _corrupt(at)
        at += length + records.LOG_OVERHEAD
    return at


def last_offset(batches: Buffer, at: int) -> int:
    """Return the last offset of the batches from position `at` on."""
    last, end, unpack = -1, len(batches), _SPAN.unpack_from
    while at < end:
        base, length, delta = unpack(batches, at)
        last = base + delta
        if length < 0:
            raise _corrupt(at)
        at += length + records.LOG_OVERHEAD
    return last


def find_batches(batches: Buffer, at: int, offset: int, max_bytes: int) -> tuple[int, int, int]:
    """Return where those batches begin and end, searched from position `at` on, and the offset."""
    begin, after = -1, -1
    while at < len(batches):
        base, length, delta = _SPAN.unpack_from(batches, at)
        size = length + records.LOG_OVERHEAD
        if length < 0:
            raise _corrupt(at)
        if begin < 0 and base + delta >= offset:
            begin = at
        elif begin >= 0 and at + size - begin > max_bytes:
            break
        at += size
        after = base + delta + 1
    return (begin, at, after) if begin >= 0 else (at, at, -1)


def _corrupt(at: int) -> CorruptSegment:
    return CorruptSegment(f"no record batch at position {at}")
