"""Encode the requests of the load, and read single fields of their replies by position.

Rules
- Each request has the last version before flexible headers: its fields have fixed positions, and
  old and new brokers support it.
- The topic name is known, so a reply is read by position and not decoded.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 19, 20
NO_ERROR = 0
LATEST, EARLIEST = -1, -2
MEGABYTE = 1 << 20


class Refused(Exception):
    """An error code in a reply to a request of the load."""


def text(value: str) -> bytes:
    """Encode a Kafka string: its length in two bytes, then UTF-8."""
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def frame(key: int, version: int, body: bytes, correlation_id: int = 0) -> bytes:
    """Encode a request frame with header version 1."""
    header = struct.pack(">hhi", key, version, correlation_id) + text("korvet-bench")
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce(
    topic: str, batches: Mapping[int, bytes], acks: int = -1, transactional_id: str | None = None
) -> bytes:
    """Encode Produce v8 with one batch for each partition."""
    body = b"\xff\xff" if transactional_id is None else text(transactional_id)
    body += struct.pack(">hii", acks, 30_000, 1) + text(topic)
    body += struct.pack(">i", len(batches))
    for partition, batch in batches.items():
        body += struct.pack(">ii", partition, len(batch)) + batch
    return frame(PRODUCE, 8, body)


def fetch(
    topic: str, partition: int, offset: int, *, max_bytes: int = MEGABYTE, max_wait_ms: int = 500
) -> bytes:
    """Encode Fetch v11 of one partition without a fetch session."""
    body = struct.pack(">iiiibii", -1, max_wait_ms, 1, 50 * MEGABYTE, 0, 0, -1)
    body += struct.pack(">i", 1) + text(topic)
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes)
    body += struct.pack(">i", 0) + text("")
    return frame(FETCH, 11, body)


def metadata(topics: Sequence[str] | None) -> bytes:
    """Encode Metadata v4 without auto-creation; None means every topic."""
    if topics is None:
        return frame(METADATA, 4, struct.pack(">ib", -1, 0))
    names = b"".join(text(topic) for topic in topics)
    return frame(METADATA, 4, struct.pack(">i", len(topics)) + names + b"\0")


def list_offsets(topic: str, partitions: int, timestamp: int = LATEST) -> bytes:
    """Encode ListOffsets v2 for partitions 0 to `partitions` - 1."""
    body = struct.pack(">ibi", -1, 0, 1) + text(topic) + struct.pack(">i", partitions)
    for partition in range(partitions):
        body += struct.pack(">iq", partition, timestamp)
    return frame(LIST_OFFSETS, 2, body)


def create_topic(topic: str, partitions: int, configs: Mapping[str, str]) -> bytes:
    """Encode CreateTopics v4 with one replica."""
    body = struct.pack(">i", 1) + text(topic) + struct.pack(">ihii", partitions, 1, 0, len(configs))
    for name, value in configs.items():
        body += text(name) + text(value)
    return frame(CREATE_TOPICS, 4, body + struct.pack(">ib", 30_000, 0))


def delete_topic(topic: str) -> bytes:
    """Encode DeleteTopics v3."""
    return frame(DELETE_TOPICS, 3, struct.pack(">i", 1) + text(topic) + struct.pack(">i", 30_000))


def created(reply: memoryview) -> int:
    """Return the error code of a CreateTopics v4 or DeleteTopics v3 reply for one topic."""
    (length,) = struct.unpack_from(">h", reply, 12)
    (error,) = struct.unpack_from(">h", reply, 14 + length)
    return int(error)


def listed(reply: memoryview, topic: str) -> list[tuple[int, int]]:
    """Return (error code, offset) of each partition of a ListOffsets v2 reply for one topic."""
    at = 4 + 4 + 4 + 2 + len(topic)
    (count,) = struct.unpack_from(">i", reply, at)
    rows = struct.iter_unpack(">ihqq", reply[at + 4 : at + 4 + count * 22])
    return [(error, offset) for _, error, _, offset in rows]


@dataclass(frozen=True, slots=True)
class ProduceReply:
    """Positions in a Produce v8 reply with one partition of one topic."""

    topic: str

    def base_offset(self, reply: memoryview) -> int:
        """Return the batch's base offset; raise Refused if it was not stored."""
        error, offset = struct.unpack_from(">hq", reply, 4 + 4 + 2 + len(self.topic) + 4 + 4)
        if error != NO_ERROR:
            raise Refused(f"Produce to {self.topic}: error code {error}")
        return int(offset)


@dataclass(frozen=True, slots=True)
class FetchReply:
    """Positions in a Fetch v11 reply with one partition of one topic."""

    topic: str

    def read(self, reply: memoryview, stop: int) -> tuple[int, int, int]:
        """Count the whole batches that begin below `stop`: (records, bytes, next offset)."""
        at = 4 + 4 + 2 + 4 + 4 + 2 + len(self.topic) + 4
        (error,) = struct.unpack_from(">h", reply, at + 4)
        if error != NO_ERROR:
            raise Refused(f"Fetch of {self.topic}: error code {error}")
        at += 4 + 2 + 8 + 8 + 8
        (aborted,) = struct.unpack_from(">i", reply, at)
        at += 4 + max(aborted, 0) * 16 + 4
        (size,) = struct.unpack_from(">i", reply, at)
        return _walk(reply, at + 4, at + 4 + max(size, 0), stop)


def _walk(reply: memoryview, at: int, end: int, stop: int) -> tuple[int, int, int]:
    records = size = 0
    next_offset = -1
    while at + 61 <= end:
        base, length = struct.unpack_from(">qi", reply, at)
        if base >= stop or at + 12 + length > end:
            break
        (last_delta,) = struct.unpack_from(">i", reply, at + 23)
        (count,) = struct.unpack_from(">i", reply, at + 57)
        records += count
        size += 12 + length
        next_offset = base + last_delta + 1
        at += 12 + length
    return records, size, next_offset
