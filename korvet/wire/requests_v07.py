"""Parse the five requests of the Kafka 0.7 protocol, and encode their responses.

    PRODUCE, FETCH, OFFSETS    type i16, topic (i16 length, name), partition i32, then
        PRODUCE                messages (i32 length, bytes)
        FETCH                  offset i64, most bytes i32
        OFFSETS                time i64, most offsets i32
    MULTIFETCH, MULTIPRODUCE   type i16, count i16, then as often: topic, partition and the rest
    a response                 error i16, then the messages, or i32 count and i64 offsets;
                               of MULTIFETCH, error i16, then for each i32 length, error, messages

Rules
- A frame begins with its type: the connection has read the length prefix.
- A frame with bytes missing or left over is refused, and so is a topic name that no file could
  have: requests of newer clients look like that.
"""

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeAlias, TypeVar

import msgspec

Buffer: TypeAlias = bytes | bytearray | memoryview
R = TypeVar("R")

PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS = range(5)
NAMES = ("Produce", "Fetch", "MultiFetch", "MultiProduce", "Offsets")
RANDOM_PARTITION = -1
LATEST, EARLIEST = -1, -2
MAX_TOPIC = 255

_MODERN_KEYS = range(93)


class LegacyError(IntEnum):
    """The error codes of the Kafka 0.7 protocol."""

    UNKNOWN = -1
    NO_ERROR = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    WRONG_PARTITION = 3
    INVALID_FETCH_SIZE = 4


class BrokenFrame(ValueError):
    """The bytes are no request of the Kafka 0.7 protocol; the message says why."""


class Produce(msgspec.Struct, frozen=True):
    """Messages for one partition; -1: the broker chooses one."""

    topic: str
    partition: int
    messages: Buffer


class Fetch(msgspec.Struct, frozen=True):
    """A request for at most `max_bytes` bytes of the log from `offset` on."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


class Offsets(msgspec.Struct, frozen=True):
    """A request for at most `max_offsets` offsets older than `time`, newest first."""

    topic: str
    partition: int
    time: int
    max_offsets: int


Request: TypeAlias = Produce | Fetch | Offsets


class Frame(msgspec.Struct, frozen=True):
    """A frame's requests, all of one type; `kind` is the type in the frame."""

    kind: int
    requests: Sequence[Request]


class _Reader:
    """Reads a frame from front to back; raises BrokenFrame if it ends early."""

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data)
        self._at = 0

    def number(self, layout: struct.Struct, what: str) -> int:
        if self._at + layout.size > len(self._view):
            raise BrokenFrame(f"the request ends before {what}")
        (value,) = layout.unpack_from(self._view, self._at)
        self._at += layout.size
        return int(value)

    def bytes(self, length: int, what: str) -> memoryview:
        if length < 0 or self._at + length > len(self._view):
            left = len(self._view) - self._at
            raise BrokenFrame(f"{what} has a length of {length} bytes, and {left} are left")
        self._at += length
        return self._view[self._at - length : self._at]

    def topic(self) -> str:
        raw = bytes(self.bytes(self.number(_I16, "the topic's length"), "the topic"))
        if not 0 < len(raw) <= MAX_TOPIC or not raw.isascii() or not raw.decode().isprintable():
            raise BrokenFrame(f"{raw[:20]!r} is no topic name")
        return raw.decode()

    @property
    def left(self) -> int:
        return len(self._view) - self._at


_I16, _I32, _I64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


def parse(data: Buffer) -> Frame:
    """Parse the frame's requests. Raises BrokenFrame."""
    reader = _Reader(data)
    kind = reader.number(_I16, "its type")
    try:
        found = _requests(reader, kind)
        if reader.left:
            raise BrokenFrame(f"{reader.left} bytes are left after the request")
    except BrokenFrame as error:
        if _is_modern(data, kind):
            raise BrokenFrame(
                f"{error}; it looks like a client of Kafka 0.8 or newer, and this port "
                "(--legacy-listen) speaks 0.7"
            ) from None
        raise
    return Frame(kind, found)


def _requests(reader: _Reader, kind: int) -> list[Request]:
    if not PRODUCE <= kind <= OFFSETS:
        raise BrokenFrame(f"there is no request of type {kind}")
    read, count = _READERS[kind], 1
    if kind in (MULTIFETCH, MULTIPRODUCE):
        count = reader.number(_I16, "the number of requests")
        if count < 0:
            raise BrokenFrame(f"a multi-request has a count of {count} requests")
    return [read(reader) for _ in range(count)]


def _produce(reader: _Reader) -> Produce:
    topic, partition = reader.topic(), reader.number(_I32, "the partition")
    length = reader.number(_I32, "the messages' length")
    return Produce(topic, partition, reader.bytes(length, "the message set"))


def _fetch(reader: _Reader) -> Fetch:
    topic, partition = reader.topic(), reader.number(_I32, "the partition")
    offset = reader.number(_I64, "the offset")
    return Fetch(topic, partition, offset, reader.number(_I32, "the most bytes"))


def _offsets(reader: _Reader) -> Offsets:
    topic, partition = reader.topic(), reader.number(_I32, "the partition")
    time = reader.number(_I64, "the time")
    return Offsets(topic, partition, time, reader.number(_I32, "the most offsets"))


_READERS: Sequence[Callable[[_Reader], Request]] = (_produce, _fetch, _fetch, _produce, _offsets)
"""The reader of one request of each type."""


def _is_modern(data: Buffer, kind: int) -> bool:
    """Return whether it begins like a request of Kafka 0.8 or newer: key, version, ids."""
    if len(data) < 10 or kind not in _MODERN_KEYS:
        return False
    version, length = _I16.unpack_from(data, 2)[0], _I16.unpack_from(data, 8)[0]
    if not 0 <= version < 20 or not -1 <= length <= len(data) - 10:
        return False
    client = bytes(memoryview(data)[10 : 10 + max(length, 0)])
    return client.isascii() and client.decode().isprintable()


def is_v07_request(data: Buffer) -> bool:
    """Return whether the frame is a whole request of the Kafka 0.7 protocol."""
    try:
        parse(data)
    except BrokenFrame:
        return False
    return True


def messages_answer(error: int, messages: Sequence[Buffer]) -> list[Buffer]:
    """Encode the response to FETCH with its length prefix; also one part of MULTIFETCH's."""
    size = 2 + sum(map(len, messages))
    return [struct.pack(">ih", size, error), *messages]


def multi_answer(parts: Sequence[list[Buffer]]) -> list[Buffer]:
    """Encode the response to MULTIFETCH from responses to FETCH."""
    size = 2 + sum(len(buffer) for part in parts for buffer in part)
    return [struct.pack(">ih", size, 0), *(buffer for part in parts for buffer in part)]


def offsets_answer(error: int, offsets: Sequence[int]) -> list[Buffer]:
    """Encode the response to OFFSETS."""
    size = 2 + 4 + 8 * len(offsets)
    return [struct.pack(f">ihi{len(offsets)}q", size, error, len(offsets), *offsets)]
