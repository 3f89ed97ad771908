"""Decode the metadata and assignments of the classic `consumer` protocol.

Clients write these bytes: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment. A
malformed subscription may mean any topic, a malformed assignment none.
"""

import struct
from collections.abc import Iterable


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
