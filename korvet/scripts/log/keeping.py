"""A partition's log begins, lets go of what is old, and ends."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script
from korvet.scripts.writer import IDS_FROM, JOB_IDS_FROM, KEEP_JOB_MS, KEEP_MS


class OpenReply(Reply):
    """`opened` is 1 when the log was made now."""

    error: int
    opened: int


class DropReply(Reply):
    """`dropped` is 1 when the partition is gone now."""

    error: int
    dropped: int


class TruncateReply(Reply):
    """The log starts at `start`; `removed` entries are gone; `again` is the offset to ask for
    again, -1 when that was all."""

    error: int
    start: int
    removed: int
    again: int


class RetainReply(Reply):
    """The log starts at `start`; `more` is 1 when another call has more to remove."""

    error: int
    start: int
    removed: int
    more: int


class ForgetReply(Reply):
    """`removed` producers are forgotten; go on at `cursor` until it is `0`."""

    error: int
    cursor: bytes
    removed: int


OPEN = Script("log.open", OpenReply)
DROP = Script("log.drop", DropReply)
TRUNCATE = Script("log.truncate", TruncateReply)
RETAIN = Script("log.retain", RetainReply)
FORGET = Script("log.forget", ForgetReply)


def open_log(
    keys: Keys, topic: str, partition: int, *, topic_id: str, format: str, mode: str, bits: int
) -> Call[OpenReply]:
    """The partition has an empty log, unless this topic's is there already."""
    k = keys.partition(topic, partition)
    return Call(OPEN, (k.log, k.stream), (topic_id, format, mode, bits))


def drop(keys: Keys, topic: str, partition: int, *, topic_id: str) -> Call[DropReply]:
    """Nothing of the partition is left, if it was that topic's."""
    k = keys.partition(topic, partition)
    parts = [key for key in k.all if key != k.log]
    return Call(DROP, (k.log, *parts), (topic_id,))


def truncate(
    keys: Keys, topic: str, partition: int, *, topic_id: str, before: int, steps: int = 256
) -> Call[TruncateReply]:
    """Every record below `before` is gone, or so many index steps of them; -1 means the end."""
    k = keys.partition(topic, partition)
    return Call(TRUNCATE, (k.stream, k.log, k.index), (topic_id, before, steps))


def retain(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    retention_ms: int,
    retention_bytes: int,
    steps: int,
) -> Call[RetainReply]:
    """What retention lets go of is gone, at most `steps` index steps of it."""
    k = keys.partition(topic, partition)
    return Call(
        RETAIN, (k.stream, k.log, k.index), (topic_id, retention_ms, retention_bytes, steps)
    )


_CLASSES = (JOB_IDS_FROM, KEEP_JOB_MS, IDS_FROM, KEEP_MS)


def forget(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    cursor: bytes,
    silence_ms: int,
) -> Call[ForgetReply]:
    """Some of the partition's silent producers are forgotten; tasks of Spark later: those of jobs,
    which may yet be tried again, and latest those of writers that may come back."""
    k = keys.partition(topic, partition)
    return Call(FORGET, (k.producers,), (cursor, silence_ms, *_CLASSES))
