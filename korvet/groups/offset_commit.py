"""Committed offsets as Redis has them: the twin of lua/lib/offset_commit.lua."""

import msgspec

Row = tuple[str, int, int, int, str, str]
"""One partition of a commit: topic, partition, offset, leader epoch, topic id, metadata."""


class CommittedOffset(msgspec.Struct, frozen=True):
    """How far a group has read one partition. `topic_id` is empty in one written by hand."""

    offset: int
    epoch: int = -1
    time_ms: int = -1
    topic_id: str = ""
    metadata: str = ""


def read_commit(raw: bytes) -> CommittedOffset | None:
    """The commit in these bytes; None for what is no commit at all."""
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


def place_of(field: bytes) -> tuple[str, int] | None:
    """The topic and partition that a field of a group's offsets stands for."""
    _, _, rest = field.decode("utf-8", "replace").partition(":")
    topic, _, number = rest.rpartition(":")
    topic = topic.rpartition(":")[2]
    return (topic, int(number)) if topic and number.isdecimal() else None
