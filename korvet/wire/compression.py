"""Compression codecs of record batches, by Kafka's numbers, with a bound on the output.

cramjam and zlib do the work. Added here: the bound (a few compressed bytes may claim gigabytes) and
the xerial framing of Java's snappy.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache

import cramjam

from korvet.base.buffers import CAPACITY, has_room, work_buffer
from korvet.base.late_import import aiokafka

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
BY_NAME = {name: number for number, name in enumerate(NAMES)}

_EFFORT = {LZ4: {"level": 0}}
_GZIP_EFFORT, _GZIP_FRAMED = 6, 31
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS = b"\0\0\0\1" * 2
_XERIAL_HEADER = 16
_GZIP_MAGIC = b"\x1f\x8b"
_LZ4_MAGIC = bytes.fromhex("04224d18")
_LZ4_SIZE, _LZ4_DICTIONARY = 8, 1
"""Flags of a frame whose header has that field, of 8 and of 4 bytes."""
_XXH32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_FIRST_GUESS = 65536
_LZ4_VERSION, _LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_CHECKSUM = 0x40, 0x20, 0x10, 4
"""Flags of an lz4 frame: version 1, and what its blocks have."""
_LZ4_STORED = 0x80000000
"""Flag of a block's size: the block is not compressed."""
_INTO: dict[int, Callable[..., int]] = {
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
MAX_GZIP_MEMBERS = 16
"""Max gzip members read; for each member, the bytes after it are copied."""
_GZIP_STEP = 1 << 20
"""Bytes of gzip that are decompressed and copied at once."""
MAX_BLOCKS = 1 << 14
"""Max blocks of a snappy or lz4 payload, and one more for each KiB: each costs a microsecond."""


class CorruptPayload(ValueError):
    """The compressed bytes cannot be decompressed."""


class PayloadTooLarge(ValueError):
    """The decompressed bytes would exceed the bound."""


def compress(codec: int, data: bytes | bytearray | memoryview) -> bytes:
    """Compress the bytes with Kafka's codec number; snappy uses xerial framing.

    The levels are the defaults of Java's clients (KIP-390): gzip 6, zstd 3, and the fast mode of
    lz4, which is what Kafka's level 9 means.
    """
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:  # for few bytes many times faster than through a file object
        return zlib.compress(data, _GZIP_EFFORT, _GZIP_FRAMED)
    # Imported only when writing: the import takes longer than all others of Spark's readers.
    name = ("snappy_encode", "lz4_encode", "zstd_encode")[codec - SNAPPY]
    encode: Callable[..., bytes] = getattr(aiokafka("codec"), name)
    return bytes(encode(bytes(data), **_EFFORT.get(codec, {})))


def decompress_produced(
    codec: int, data: bytes | bytearray | memoryview, limit: int
) -> bytes | memoryview:
    """Decompress a producer's bytes, which every client has to be able to read.

    Raises as `decompress`, and CorruptPayload for bytes after the end and for lz4 frames that Java
    does not read. The result is valid until the next call.
    """
    if codec == SNAPPY and data[:8] == _XERIAL and data[8:_XERIAL_HEADER] != _XERIAL_VERSIONS:
        raise CorruptPayload("snappy: only version 1 of Java's framing is read by all clients")
    into = _INTO_WORK_BUFFER.get(codec)
    max_bytes = limit if has_room(limit) else CAPACITY
    if into is not None and (max_bytes == limit or 6 * len(data) <= max_bytes):
        room = work_buffer(max_bytes).room[:max_bytes]
        try:
            return room[: into(memoryview(data), room)]
        except cramjam.DecompressionError as error:
            failure = _failure(error, codec, limit)
        except PayloadTooLarge as error:
            failure = error
        if max_bytes == limit or not isinstance(failure, PayloadTooLarge):
            raise failure
    if codec == GZIP:
        return _gunzip(data, limit, exact=True)
    if codec == LZ4:
        _check_lz4_frame(memoryview(data))
    return decompress(codec, data, limit)


def _failure(error: Exception, codec: int, limit: int) -> ValueError:
    """Return what an error of cramjam means."""
    if "whole buffer" in str(error) or "too small" in str(error):
        return PayloadTooLarge(f"{NAMES[codec]}: more than {limit} bytes")
    return CorruptPayload(f"{NAMES[codec]}: {error}")


def decompress(codec: int, data: bytes | bytearray | memoryview, limit: int) -> bytes | memoryview:
    """Decompress the bytes to at most `limit` bytes.

    Raises CorruptPayload for bytes that are not this codec's, PayloadTooLarge beyond `limit`.
    """
    if codec == NONE:
        return memoryview(data)
    if codec == GZIP:
        return _gunzip(data, limit)
    if codec == SNAPPY:
        return _unsnappy(data, limit)
    if codec in _INTO:
        return _grow(_INTO[codec], data, limit)
    raise CorruptPayload(f"there is no codec {codec}")


def fix_lz4_checksum(frame: bytes) -> bytes:
    """Return the lz4 frame with a correct header checksum.

    In message format v0, Kafka's clients hash the frame's magic number too, and Kafka's readers do
    not check the result (KAFKA-3160). Bytes that are no such frame are returned unchanged.
    """
    flags = frame[4] if len(frame) > 4 else 0
    at = 6 + 8 * bool(flags & _LZ4_SIZE) + 4 * bool(flags & _LZ4_DICTIONARY)
    if frame[:4] != _LZ4_MAGIC or len(frame) <= at:
        return frame
    return frame[:at] + bytes((_xxh32(frame[4:at]) >> 8 & 0xFF,)) + frame[at + 1 :]


def _xxh32(data: bytes) -> int:
    """Return the xxHash32 of fewer than 16 bytes, as lz4's frame format defines it."""
    prime1, prime2, prime3, prime4, prime5 = _XXH32
    found = prime5 + len(data)
    for at in range(0, len(data) - 3, 4):
        found += int.from_bytes(data[at : at + 4], "little") * prime3
        found = _rotated(found, 17) * prime4
    for byte in data[len(data) & ~3 :]:
        found = _rotated(found + byte * prime5, 11) * prime1
    found &= 0xFFFFFFFF
    found = (found ^ found >> 15) * prime2 & 0xFFFFFFFF
    found = (found ^ found >> 13) * prime3 & 0xFFFFFFFF
    return found ^ found >> 16


def _rotated(number: int, bits: int) -> int:
    number &= 0xFFFFFFFF
    return (number << bits | number >> 32 - bits) & 0xFFFFFFFF


def _check_lz4_frame(frame: memoryview) -> list[tuple[int, int]]:
    """Return the position and the size field of each block.

    Raises CorruptPayload unless this is one whole lz4 frame of independent blocks. Java's reader
    takes no other; it and other readers ignore bytes after the end, or do not.
    """
    flags = frame[4] if len(frame) > 6 else 0
    if frame[:4] != _LZ4_MAGIC or flags & 0xE1 != _LZ4_VERSION | _LZ4_INDEPENDENT:
        raise CorruptPayload("lz4: this is no frame of independent blocks")
    at = 15 if flags & _LZ4_SIZE else 7
    after_block = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    blocks: list[tuple[int, int]] = []
    while at + 4 <= len(frame):
        field = int.from_bytes(frame[at : at + 4], "little")
        size = field & ~_LZ4_STORED
        at += 4
        if not field:
            at += 4 if flags & _LZ4_CONTENT_CHECKSUM else 0
            if at == len(frame):
                return blocks
            break
        blocks.append((at, field))
        _check_block_count(len(blocks), frame)
        at += size + after_block
    raise CorruptPayload("lz4: the frame ends early, or bytes follow it")


def _check_block_count(count: int, payload: memoryview) -> None:
    if count > MAX_BLOCKS + (len(payload) >> 10):
        raise CorruptPayload(f"a payload of {len(payload)} bytes has more than {count - 1} blocks")


@cache
def _lz4_block_sizes() -> dict[bytes, int]:
    """Return the max bytes of a block by the frame's descriptor, for frames without checksums.

    Java's and librdkafka's producers send these. Their blocks can be decompressed one by one, at
    two thirds of the time: the reader of frames makes and clears buffers for each frame.
    """
    flags = _LZ4_VERSION | _LZ4_INDEPENDENT
    found = {}
    for size in range(4, 8):
        descriptor = bytes((flags, size << 4))
        found[descriptor + bytes((_xxh32(descriptor) >> 8 & 0xFF,))] = 1 << 2 * size + 8
    return found


def _lz4_into(frame: memoryview, room: memoryview) -> int:
    """Decompress a frame into `room`; return the size, or raise DecompressionError."""
    blocks = _check_lz4_frame(frame)
    block_bytes = _lz4_block_sizes().get(bytes(frame[4:7]))
    if block_bytes is None:
        size: int = cramjam.lz4.decompress_into(frame, room)
        return size
    at, end = 0, len(room)
    for start, field in blocks:
        size = field & ~_LZ4_STORED
        left = min(block_bytes, end - at)
        if not 0 < size <= block_bytes:
            raise CorruptPayload(f"lz4: a block of {size} bytes")
        block = frame[start : start + size]
        try:
            if field & _LZ4_STORED:
                room[at : at + size] = block
                at += size
            else:
                at += cramjam.lz4.decompress_block_into(block, room[at : at + left], left)
        except (cramjam.DecompressionError, ValueError) as error:
            if left < block_bytes:
                raise PayloadTooLarge(f"lz4: more than {end} bytes") from None
            raise CorruptPayload(f"lz4: {error}") from None
    return at


def _snappy_into(data: memoryview, room: memoryview) -> int:
    """Decompress snappy of either framing into `room`; raise DecompressionError if it fails."""
    at = 0
    for block in _snappy_blocks(data):
        if cramjam.snappy.decompress_raw_len(block) > len(room) - at:
            raise PayloadTooLarge(f"snappy: more than {len(room)} bytes")
        at += cramjam.snappy.decompress_raw_into(block, room[at:])
    return at


def _gunzip_into(data: memoryview, room: memoryview) -> int:
    """Decompress all gzip members into `room`, a step at a time: the rest is not copied."""
    at = 0
    for _ in range(MAX_GZIP_MEMBERS):
        inflate, left = zlib.decompressobj(wbits=47), bytes(data)
        while not inflate.eof:
            try:
                part = inflate.decompress(left, _GZIP_STEP)
            except zlib.error as error:
                raise CorruptPayload(f"gzip: {error}") from None
            left = inflate.unconsumed_tail
            if len(part) > len(room) - at:
                raise PayloadTooLarge(f"gzip: more than {len(room)} bytes")
            room[at : at + len(part)] = part
            at += len(part)
            if not (part or left or inflate.eof):
                raise CorruptPayload("gzip: the stream ends early")
        data = memoryview(inflate.unused_data)
        if not data:
            return at
        if data[:2] != _GZIP_MAGIC:
            raise CorruptPayload("gzip: bytes follow the stream")
    raise CorruptPayload(f"gzip: more than {MAX_GZIP_MEMBERS} members")


_INTO_WORK_BUFFER: dict[int, Callable[[memoryview, memoryview], int]] = {
    GZIP: _gunzip_into,
    SNAPPY: _snappy_into,
    LZ4: _lz4_into,
    ZSTD: cramjam.zstd.decompress_into,
}


def _gunzip(data: bytes | bytearray | memoryview, limit: int, *, exact: bool = False) -> bytes:
    """Decompress all gzip members; unless `exact`, bytes after them are ignored, as in Java."""
    parts: list[bytes] = []
    left = limit
    while len(parts) < MAX_GZIP_MEMBERS:
        inflate = zlib.decompressobj(wbits=47)
        try:
            part = inflate.decompress(data, left + 1)
        except zlib.error as error:
            raise CorruptPayload(f"gzip: {error}") from None
        left -= len(part)
        if left < 0:
            raise PayloadTooLarge(f"gzip: more than {limit} bytes")
        if not inflate.eof:
            raise CorruptPayload("gzip: the stream ends early")
        parts.append(part)
        data = inflate.unused_data
        if data[:2] != _GZIP_MAGIC:
            if exact and data:
                raise CorruptPayload("gzip: bytes follow the stream")
            return part if len(parts) == 1 else b"".join(parts)
    raise CorruptPayload(f"gzip: more than {MAX_GZIP_MEMBERS} members")


def _unsnappy(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    for block in _snappy_blocks(memoryview(data)):
        try:
            length = cramjam.snappy.decompress_raw_len(block)
            if length > limit:
                raise PayloadTooLarge(f"snappy: {length} bytes, more than {limit}")
            parts.append(bytes(cramjam.snappy.decompress_raw(block)))
        except cramjam.DecompressionError as error:
            raise CorruptPayload(f"snappy: {error}") from None
        limit -= length
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of Java's framing, or the whole without it."""
    if view[: len(_XERIAL)] != _XERIAL:
        yield view
        return
    at, count = _XERIAL_HEADER, 0
    while at < len(view):
        count += 1
        _check_block_count(count, view)
        if at + 4 > len(view):
            raise CorruptPayload("snappy: half a block length")
        (size,) = struct.unpack_from(">i", view, at)
        at += 4
        if size < 0 or at + size > len(view):
            raise CorruptPayload("snappy: a block is longer than what follows")
        yield view[at : at + size]
        at += size


def _grow(
    into: Callable[[bytes, bytearray], int], data: bytes | bytearray | memoryview, limit: int
) -> memoryview:
    """Decompress into a buffer that doubles until the result fits; neither format has a size."""
    source = bytes(data)
    size = min(limit, max(_FIRST_GUESS, 6 * len(source)))
    while True:
        room = bytearray(size)
        try:
            return memoryview(room)[: into(source, room)]
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error) and "too small" not in str(error):
                raise CorruptPayload(str(error)) from None
        if size >= limit:
            raise PayloadTooLarge(f"more than {limit} bytes")
        size = min(limit, 4 * size)
