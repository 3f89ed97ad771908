"""Committed offsets as they are stored: the mirror of lua/lib/offset_commit.lua."""

import msgspec

Row = tuple[str, int, int, int, str, str]
"""One partition of a commit: topic, partition, offset, leader epoch, topic id, metadata."""


class CommittedOffset(msgspec.Struct, frozen=True):
    """The committed offset of one partition. `topic_id` is empty in one written by hand."""

    offset: int
    epoch: int = -1
    time_ms: int = -1
    topic_id: str = ""
    metadata: str = ""


def parse_commit(raw: bytes) -> CommittedOffset | None:
    """Parse a stored commit; None if it is malformed."""
    parts = raw.split(b" ", 5)
    try:
        if len(parts) < 6:
            return CommittedOffset(int(parts[0]))
        return CommittedOffset(
            int(parts[0]),
            int(parts[1]),
            int(parts[2]),
            parts[4].decode(),
            parts[5].decode("utf-8", "surrogateescape"),
        )
    except ValueError:
        return None


def parse_field(field: bytes) -> tuple[str, int] | None:
    """Parse a field of a group's offsets: topic and partition; None if it is malformed."""
    _, _, partition = field.decode("utf-8", "replace").partition(":")
    topic, _, number = partition.rpartition(":")
    topic = topic.rpartition(":")[2]
    return (topic, int(number)) if topic and number.isdecimal() else None
