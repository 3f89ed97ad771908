"""Message sets (message formats v0 and v1 of Kafka 0.8 to 0.10): read and built.

A message: offset i64, size i32, crc32 u32, magic i8, attributes i8, in v1 timestamp i64, then key
and value as i32-prefixed bytes, -1 for null. A compressed message's value is a message set; one
level of nesting is allowed (KIP-31 for the relative inner offsets of v1).
"""

import struct
import zlib
from collections.abc import Collection, Iterable

from korvet.base.errors import ErrorCode
from korvet.base.late_import import aiokafka
from korvet.wire import compression
from korvet.wire.records import (
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAX_DECODED_RECORDS,
    UNLIMITED,
    BadBatch,
    Buffer,
    Record,
    corrupt,
    inflate,
    too_many_records,
)

_HEAD = struct.Struct(">qiIbb")
_CRC_FROM = 4
_MIN_SIZE = 14
NO_TIMESTAMP = -1


def parse(data: Buffer, *, limit: int) -> list[Record]:
    """Return the records of a message set, compressed messages included; offsets count from 0.

    Raises BadBatch: CORRUPT_MESSAGE (CRC, lengths, nesting), MESSAGE_TOO_LARGE beyond `limit`
    decompressed bytes, UNSUPPORTED_COMPRESSION_TYPE.
    """
    found: list[Record] = []
    for timestamp, codec, key, value, magic in _messages(memoryview(data)):
        if codec == compression.NONE:
            found.append((len(found), timestamp, key, value, []))
            if len(found) > MAX_DECODED_RECORDS:
                raise too_many_records(len(found), MAX_DECODED_RECORDS)
            continue
        inner = _inflate(codec, value, magic, limit)
        limit -= len(inner)
        for stamp, deeper, inner_key, inner_value, _ in _messages(memoryview(inner)):
            if deeper != compression.NONE:
                raise corrupt("a compressed message holds another compressed one")
            found.append((len(found), stamp, inner_key, inner_value, []))
            if len(found) > MAX_DECODED_RECORDS:
                raise too_many_records(len(found), MAX_DECODED_RECORDS)
    if not found:
        raise corrupt("the message set is empty")
    return found


def _inflate(codec: int, value: bytes | None, magic: int, limit: int) -> Buffer:
    if value is None:
        raise corrupt("a compressed message has no value")
    if codec == compression.LZ4 and magic == 0:
        value = compression.fix_lz4_checksum(value)
    if codec > compression.LZ4:
        raise BadBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} needs message format v2"
        )
    return inflate(codec, value, limit, corrupt)


def _messages(view: memoryview) -> Iterable[tuple[int, int, bytes | None, bytes | None, int]]:
    """Yield (timestamp, codec, key, value, magic) of each message, checked."""
    at = 0
    while at < len(view):
        if at + LOG_OVERHEAD + _MIN_SIZE > len(view):
            raise corrupt("the message set ends inside a message")
        _, size, crc, magic, attributes = _HEAD.unpack_from(view, at)
        start, end = at + LOG_OVERHEAD, at + LOG_OVERHEAD + size
        if size < _MIN_SIZE or end > len(view):
            raise corrupt(f"a message says it has {size} bytes")
        if magic not in (0, 1):
            raise corrupt(f"a message set cannot hold magic {magic}")
        if zlib.crc32(view[start + _CRC_FROM : end]) != crc:
            raise corrupt("a message's CRC-32 does not match its bytes")
        body = start + 6
        timestamp = NO_TIMESTAMP
        if magic == 1 and body + 8 <= end:
            (timestamp,) = struct.unpack_from(">q", view, body)
            body += 8
        key, body = _bytes(view, body, end)
        value, body = _bytes(view, body, end)
        if body != end:
            raise corrupt("a message is longer than its key and value")
        yield timestamp, attributes & 0x07, key, value, magic
        at = end


def _bytes(view: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    if at + 4 > end:
        raise corrupt("a message ends before a length")
    (length,) = struct.unpack_from(">i", view, at)
    at += 4
    if length == -1:
        return None, at
    if length < 0 or at + length > end:
        raise corrupt(f"a field says it has {length} bytes")
    return bytes(view[at : at + length]), at + length


def first_within(rows: list[Record], max_bytes: int, *, magic: int) -> list[Record]:
    """Return the first records: as many as fit in `max_bytes` bytes uncompressed, and one more."""
    size = 0
    overhead = 26 if magic == 0 else 34
    for count, (_, _, key, value, _) in enumerate(rows):
        if size > max_bytes:
            return rows[:count]
        size += overhead + len(key or b"") + len(value or b"")
    return rows


def is_compressed(built: Buffer) -> bool:
    """Return whether the set is one compressed message."""
    return bool(_HEAD.unpack_from(built)[4] & 0x07)


def build(
    records: Iterable[Record],
    *,
    magic: int,
    codec: int = compression.NONE,
    appended: Collection[int] = (),
) -> bytearray:
    """Build a message set of these records at their offsets; headers are left out, v0 has no times.

    With a codec the set is one compressed message. These formats have no code for zstd, nor v0 for
    lz4: such sets are built uncompressed. So are sets with records at offsets in `appended`, whose
    time is the append time: a compressed message has one such time for all records.
    """
    if codec == compression.ZSTD or (codec == compression.LZ4 and magic == 0) or appended:
        codec = compression.NONE
    rows = list(records)
    base = rows[0][0] if codec and magic == 1 else 0
    builder = aiokafka("record.legacy_records").LegacyRecordBatchBuilder(
        magic, compression.NONE, UNLIMITED
    )
    for offset, timestamp, key, value, _ in rows:
        builder.append(offset - base, timestamp, key, value)
    built = bytearray(builder.build())
    if codec == compression.NONE:
        return _stamped(built, appended) if appended and magic == 1 else built
    value = compression.compress(codec, built)
    newest = max(row[1] for row in rows)
    body = struct.pack(">bb", magic, codec)
    if magic == 1:
        body += struct.pack(">q", newest)
    body += struct.pack(">ii", -1, len(value)) + value
    crc = zlib.crc32(body)
    return bytearray(struct.pack(">qiI", rows[-1][0], len(body) + 4, crc) + body)


def _stamped(built: bytearray, appended: Collection[int]) -> bytearray:
    """Return the uncompressed set; messages at these offsets have LogAppendTime."""
    at = 0
    while at < len(built):
        offset, size, _, magic, attributes = _HEAD.unpack_from(built, at)
        body, end = at + LOG_OVERHEAD + _CRC_FROM, at + LOG_OVERHEAD + size
        if offset in appended:
            struct.pack_into(">bb", built, body, magic, attributes | LOG_APPEND_TIME)
            crc = zlib.crc32(memoryview(built)[body:end])
            struct.pack_into(">I", built, at + LOG_OVERHEAD, crc)
        at = end
    return built
