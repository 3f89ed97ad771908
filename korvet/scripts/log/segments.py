"""Segments of a partition: the lease to copy, the manifest, and removal."""

from collections.abc import Iterable, Sequence

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, ErrorReply, Reply, Script


class ClaimCopyReply(Reply):
    """`fence` is 0 if another process holds the lease; else copy from `first` on."""

    error: int
    fence: int
    first: int
    bytes: int
    records: int


class AddSegmentReply(Reply):
    """`added` is 1 if the segment is part of the log, which is copied up to `tiered`."""

    error: int
    added: int
    tiered: int


class FindSegmentReply(Reply):
    """`row` is the segment's in the manifest, empty without one; `timestamp` was searched for."""

    error: int
    timestamp: int
    row: bytes


class ExpireSegmentsReply(Reply):
    """`removed` segments left the log; the objects of the rows `due` may be deleted."""

    error: int
    start: int
    removed: int
    due: list[bytes]


class DropSegmentsReply(ExpireSegmentsReply):
    """As of log.expire_segments."""


class RestoreReply(Reply):
    """The log is created with `restored` segments."""

    error: int
    restored: int


class LoadReply(Reply):
    """The log ends at `next`."""

    error: int
    next: int


class TrimLocalReply(Reply):
    """Redis has the log from `start` on; `more` is 1 if another call has more to remove."""

    error: int
    start: int
    removed: int
    more: int


CLAIM_COPY = Script("log.claim_copy", ClaimCopyReply)
ADD_SEGMENT = Script("log.add_segment", AddSegmentReply)
FIND_SEGMENT = Script("log.find_segment", FindSegmentReply)
EXPIRE_SEGMENTS = Script("log.expire_segments", ExpireSegmentsReply)
DROP_SEGMENTS = Script("log.drop_segments", DropSegmentsReply)
FORGET_SEGMENTS = Script("log.forget_segments", ErrorReply)
RESTORE = Script("log.restore", RestoreReply)
LOAD = Script("log.load", LoadReply)
TRIM_LOCAL = Script("log.trim_local", TrimLocalReply)


def claim_copy(
    keys: Keys, topic: str, partition: int, *, topic_id: str, holder: str, ttl_ms: int
) -> Call[ClaimCopyReply]:
    """Acquire or renew the lease to copy the partition."""
    k = keys.partition(topic, partition)
    return Call(CLAIM_COPY, (k.log, k.index), (topic_id, holder, ttl_ms))


def add_segment(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    fence: int,
    first: int,
    last: int,
    records: int,
    size: int,
    row: str,
) -> Call[AddSegmentReply]:
    """Make a copied segment part of the log, if the lease and its first offset match."""
    k = keys.partition(topic, partition)
    return Call(
        ADD_SEGMENT, (k.log, k.segments), (topic_id, fence, first, last, records, size, row)
    )


def find_segment(
    keys: Keys, topic: str, partition: int, *, topic_id: str, timestamp: int
) -> Call[FindSegmentReply]:
    """Find the oldest segment with a record at or after the timestamp; -3: the newest."""
    k = keys.partition(topic, partition)
    return Call(FIND_SEGMENT, (k.log, k.segments), (topic_id, timestamp))


def expire_segments(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    retention_ms: int,
    retention_bytes: int,
    delay_ms: int,
    most: int,
) -> Call[ExpireSegmentsReply]:
    """Remove the segments below the log start, or past retention, at most `most`."""
    k = keys.partition(topic, partition)
    return Call(
        EXPIRE_SEGMENTS,
        (k.log, k.segments, k.deleted_segments),
        (topic_id, retention_ms, retention_bytes, delay_ms, most),
    )


def drop_segments(
    keys: Keys, topic: str, partition: int, *, topic_id: str, delay_ms: int, most: int
) -> Call[DropSegmentsReply]:
    """Remove all segments from the log, at most `most` in this call."""
    k = keys.partition(topic, partition)
    return Call(DROP_SEGMENTS, (k.log, k.segments, k.deleted_segments), (topic_id, delay_ms, most))


def forget_segments(
    keys: Keys, topic: str, partition: int, *, rows: Sequence[bytes]
) -> Call[ErrorReply]:
    """Forget removed segments whose objects are deleted; at least one row."""
    k = keys.partition(topic, partition)
    return Call(FORGET_SEGMENTS, (k.deleted_segments,), rows)


def restore(
    keys: Keys,
    topic: str,
    partition: int,
    rows: Iterable[tuple[int, int, int, int, str]],
    *,
    topic_id: str,
    format: str,
    mode: str,
    bits: int,
    epoch: int,
    start: int,
    next: int,
) -> Call[RestoreReply]:
    """Create a log from segments: rows of first, last, records, size and the end of its row."""
    k = keys.partition(topic, partition)
    return Call(
        RESTORE,
        (k.log, k.stream, k.segments),
        (
            topic_id,
            format,
            mode,
            bits,
            epoch,
            start,
            next,
            *(value for row in rows for value in row),
        ),
    )


LoadedEntry = tuple[int, int, int, int, int, Sequence[bytes]]
"""First and last offset, records, size, max timestamp (-1: none), and fields of an entry."""


def load(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    next: int = -1,
    aborted: Sequence[tuple[str, int]] = (),
    entries: Iterable[LoadedEntry] = (),
) -> Call[LoadReply]:
    """Append entries at their offsets to a log that is being restored.

    `aborted` are members and scores of the aborted transactions.
    """
    k = keys.partition(topic, partition)
    args: list[Arg] = [topic_id, next, len(aborted)]
    for member, score in aborted:
        args += (member, score)
    for *numbers, fields in entries:
        args += (*numbers, len(fields), *fields)
    return Call(LOAD, (k.stream, k.log, k.index, k.aborted_txns), args)


def trim_local(
    keys: Keys, topic: str, partition: int, *, topic_id: str, before: int, steps: int
) -> Call[TrimLocalReply]:
    """Remove copied records below `before` from Redis, at most `steps` index steps of them."""
    k = keys.partition(topic, partition)
    return Call(TRIM_LOCAL, (k.stream, k.log, k.index), (topic_id, before, steps))
