"""Encode and decode the assignments of groups, and the subscriptions of classic consumers.

A modern group has partitions by topic id, as lua/lib/partition_list.lua: `id:0,1;id:2`. A classic
one has what its clients write: of the protocol `consumer` Kafka's ConsumerProtocolSubscription and
ConsumerProtocolAssignment. A malformed subscription may mean any topic, a malformed assignment
none.
"""

import struct
from collections.abc import Iterable
from uuid import UUID

from korvet.wire.messages.consumer_group_heartbeat import Assignment, TopicPartitions


def encode_assignment(partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """Encode partitions, given as topic ids and partition numbers."""
    rows = [(topic, ",".join(map(str, numbers))) for topic, numbers in partitions]
    return ";".join(f"{topic}:{numbers}" for topic, numbers in rows if numbers).encode()


def decode_assignment(encoded: bytes) -> dict[str, list[int]]:
    """Decode partitions: topic id to partition numbers, in order."""
    rows = [row.partition(":") for row in encoded.decode().split(";") if row]
    return {topic: sorted(map(int, numbers.split(","))) for topic, _, numbers in sorted(rows)}


def assignment_of(encoded: bytes) -> Assignment:
    """Return the assignment in the response to a member's heartbeat."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=UUID(hex=topic_id), partitions=numbers)
            for topic_id, numbers in decode_assignment(encoded).items()
        ]
    )


def subscribed_topics(metadata: Iterable[bytes]) -> set[str] | None:
    """Return all topics that these members subscribe to; None if a subscription is malformed."""
    found: set[str] = set()
    for text in metadata:
        names = _topics(text)
        if names is None:
            return None
        found.update(names)
    return found


def _topics(metadata: bytes) -> list[str] | None:
    names: list[str] = []
    try:
        _, count = struct.unpack_from(">hi", metadata, 0)
        at = 6
        for _ in range(count):
            name, at = _text(metadata, at)
            names.append(name)
    except (struct.error, UnicodeDecodeError):
        return None
    return names


def _text(data: bytes, at: int) -> tuple[str, int]:
    """Return the string at a position and the position after it. Raises struct.error."""
    (size,) = struct.unpack_from(">h", data, at)
    (raw,) = struct.unpack_from(f">{size}s", data, at + 2)
    return raw.decode(), at + 2 + size


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]]:
    """Return a member's assigned partitions, as topic and number."""
    found: list[tuple[str, int]] = []
    try:
        _, topics = struct.unpack_from(">hi", assignment, 0)
        at = 6
        for _ in range(topics):
            name, at = _text(assignment, at)
            (count,) = struct.unpack_from(">i", assignment, at)
            numbers = struct.unpack_from(f">{count}i", assignment, at + 4)
            at += 4 + 4 * count
            found += ((name, number) for number in numbers)
    except (struct.error, UnicodeDecodeError):
        return []
    return found
