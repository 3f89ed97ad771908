"""Message sets of Kafka 0.7, in which an offset is a byte position.

message    length i32 (of all that follows), magic i8, in magic 1 codec i8, crc32 u32, payload

Rules
- A message takes `length + 4` offsets, and its offset is that of its first byte.
- A compressed message's payload is a message set, compressed; one level deep. It is stored
  unchanged, and the records inside it have the offsets of its first bytes, one each: every record's
  offset is inside its message. A message with more records than bytes (thousands of equal records
  compress that well) is the exception: it is compressed again as several, so that each has enough
  bytes.
- A record of a newer client is one message of magic 1, uncompressed, without key and headers.
- The CRC-32 covers the payload alone.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from korvet.base.errors import ErrorCode
from korvet.wire import compression
from korvet.wire.records import BadBatch, Buffer, Record, corrupt, inflate

OVERHEAD = 10
"""Bytes of a message of magic 1 without its payload."""
MAX_INNER = 200_000
"""Max records in the compressed messages of one set.

Each costs the broker some microseconds, and a set of a few kilobytes could have millions.
"""
PIECE_BYTES = 131_072
"""Approximate bytes of a stored piece: a fetch inside a set reads at least one piece."""

_HEAD = struct.Struct(">ibbI")
_HEAD_0 = struct.Struct(">ibI")
_LENGTH = struct.Struct(">i")
_LEAST = 5
"""The length of an empty message of magic 0."""


class Piece(NamedTuple):
    """Whole messages that are stored together."""

    raw: Buffer
    records: int
    tail: int
    """Offsets after the last record's offset; all of them if there is no record."""


class _Message(NamedTuple):
    """The position of one message: `view[at:end]`, its payload from `body` on."""

    at: int
    body: int
    end: int
    codec: int


def pieces(data: Buffer, *, limit: int, max_bytes: int) -> list[Piece]:
    """Check the set and cut it into pieces to store.

    `max_bytes` bounds one message's length, `limit` the decompressed bytes of all its messages.
    Raises BadBatch: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE or UNSUPPORTED_COMPRESSION_TYPE.
    """
    raw = bytes(data)
    if not raw:
        raise corrupt("the message set is empty")
    cutter = _Cutter(raw, limit)
    at = cutter.plain(0, max_bytes)
    if at < len(raw):
        for message in _messages(memoryview(raw), max_bytes, at):
            cutter.add(message)
    return cutter.finish()


class _Cutter:
    """Cuts a set into pieces, from front to back."""

    def __init__(self, raw: bytes, limit: int) -> None:
        self._raw = raw
        self._view = memoryview(raw)
        self._limit = limit
        self._inner_left = MAX_INNER
        self._pieces: list[Piece] = []
        self._begin = self._at = self._count = self._tail = 0

    def plain(self, at: int, max_messages: int) -> int:
        """Take uncompressed messages of magic 1, nearly all; return where another kind begins."""
        raw, size, head, crc32 = self._raw, len(self._raw), _HEAD.unpack_from, zlib.crc32
        begin, count, last = at, 0, at
        while at + OVERHEAD <= size:
            length, magic, codec, crc = head(raw, at)
            end = at + 4 + length
            if magic != 1 or codec or not 6 <= length <= max_messages or end > size:
                break
            if crc32(raw[at + OVERHEAD : end]) != crc:
                break
            count += 1
            last, at = at, end
            if at - begin >= PIECE_BYTES:
                self._pieces.append(Piece(self._view[begin:at], count, at - last - 1))
                begin, count = at, 0
        self._begin, self._at, self._count, self._tail = begin, at, count, at - last - 1
        return at

    def add(self, message: _Message) -> None:
        """Take the next message."""
        size = message.end - message.at
        if message.codec:
            inner = _inner(self._view, message, self._limit, self._inner_left)
            self._limit -= sum(map(len, inner))
            self._inner_left -= len(inner)
            if len(inner) > size:
                self._cut()
                self._pieces += _recompressed(inner, message.codec)
                self._begin = self._at = message.end
                return
            self._count += len(inner)
            self._tail = size - len(inner) if inner else self._tail + size
        else:
            self._count += 1
            self._tail = size - 1
        self._at = message.end
        if self._at - self._begin >= PIECE_BYTES:
            self._cut()

    def _cut(self) -> None:
        if self._at > self._begin:
            raw = self._view[self._begin : self._at]
            tail = self._tail if self._count else len(raw)
            self._pieces.append(Piece(raw, self._count, tail))
        self._begin, self._count, self._tail = self._at, 0, 0

    def finish(self) -> list[Piece]:
        """Return all pieces."""
        self._cut()
        return self._pieces


def _messages(view: memoryview, max_messages: int, at: int = 0) -> Iterator[_Message]:
    """Yield the messages of a set from `at` on, checksums verified. Raises BadBatch."""
    size = len(view)
    crc32, head = zlib.crc32, _HEAD.unpack_from
    while at < size:
        if at + 9 > size:
            raise corrupt(f"{size - at} bytes are no message")
        if at + OVERHEAD > size:
            length, magic, crc = _HEAD_0.unpack_from(view, at)
            codec = 0
        else:
            length, magic, codec, crc = head(view, at)
        end = at + 4 + length
        if magic == 1:
            body = at + OVERHEAD
        elif magic == 0:
            body, codec = at + 9, 0
            _, _, crc = _HEAD_0.unpack_from(view, at)
        else:
            raise corrupt(f"a 0.7 message cannot have magic {magic}")
        if not body <= end <= size:
            raise corrupt(f"a message says it has {length} bytes")
        if length > max_messages:
            raise BadBatch(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"A message has {length} bytes; max.message.bytes of this topic is {max_messages}.",
            )
        if crc32(view[body:end]) != crc:
            raise corrupt("a message's CRC-32 does not match its payload")
        yield _Message(at, body, end, codec)
        at = end


def _inner(view: memoryview, message: _Message, limit: int, max_messages: int) -> list[memoryview]:
    """Return the messages inside a compressed one, up to a maximum. Raises BadBatch."""
    plain = memoryview(_inflate(message.codec, view[message.body : message.end], limit))
    found: list[memoryview] = []
    for inner in _messages(plain, len(plain)):
        if inner.codec:
            raise corrupt("a compressed message holds another compressed one")
        found.append(plain[inner.at : inner.end])
        if len(found) > max_messages:
            raise BadBatch(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"compressed messages of a set hold more than {MAX_INNER} records",
            )
    return found


def _inflate(codec: int, payload: memoryview, limit: int) -> Buffer:
    if codec not in (compression.GZIP, compression.SNAPPY):
        raise BadBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Kafka 0.7 has no codec {codec}")
    return inflate(codec, payload, max(limit, 0), corrupt)


def _recompressed(inner: list[memoryview], codec: int) -> list[Piece]:
    """Compress the same records again, in messages with at least as many bytes as records."""
    packed = message(compression.compress(codec, b"".join(inner)), codec)
    if len(inner) <= len(packed):
        return [Piece(packed, len(inner), len(packed) - len(inner))]
    half = len(inner) // 2
    return _recompressed(inner[:half], codec) + _recompressed(inner[half:], codec)


def message(payload: Buffer, codec: int = compression.NONE) -> bytes:
    """Build one message of magic 1."""
    return _HEAD.pack(len(payload) + 6, 1, codec, zlib.crc32(payload)) + payload


def build(records: Iterable[Record]) -> bytearray:
    """Build the records as uncompressed messages; keys, headers and times are left out."""
    out = bytearray()
    pack, crc32 = _HEAD.pack, zlib.crc32
    for _, _, _, value, _ in records:
        payload = value or b""
        out += pack(len(payload) + 6, 1, 0, crc32(payload))
        out += payload
    return out


def sizes(records: Iterable[Record]) -> list[int]:
    """Return how many offsets each record takes."""
    return [OVERHEAD + len(value or b"") for _, _, _, value, _ in records]


def records_of(raw: Buffer, first: int, timestamp: int) -> list[Record]:
    """Return every record of a stored set whose first byte is offset `first`, inner ones included.

    Raises ValueError, IndexError or struct.error for bytes that no producer sent.
    """
    view = memoryview(raw)
    found: list[Record] = []
    at = 0
    while at < len(view):
        (length,) = _LENGTH.unpack_from(view, at)
        if length < _LEAST:
            raise ValueError(f"no message has {length} bytes")
        end = at + 4 + length
        if view[at + 4] == 0:
            found.append((first + at, timestamp, None, bytes(view[at + 9 : end]), []))
        elif view[at + 5] == 0:
            found.append((first + at, timestamp, None, bytes(view[at + OVERHEAD : end]), []))
        else:
            plain = compression.decompress(view[at + 5], view[at + OVERHEAD : end], 2**31 - 1)
            offset = first + at
            for _, _, _, value, _ in records_of(plain, 0, timestamp):
                found.append((offset, timestamp, None, value, []))
                offset += 1
        at = end
    return found
