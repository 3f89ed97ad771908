"""Encode partitions by topic id as lua/lib/partition_list.lua does: `id:0,1;id:2`."""

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
