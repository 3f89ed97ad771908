"""A partition's log begins, lets go of what is old, and ends."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script
from korvet.scripts.writer import IDS_FROM, JOB_IDS_FROM, KEEP_JOB_MS, KEEP_MS


class CreateReply(Reply):
    """`opened` is 1 when the log was made now."""

    error: int
    opened: int


class DeleteReply(Reply):
    """`dropped` is 1 when the partition is gone now."""

    error: int
    dropped: int


class DeleteRecordsReply(Reply):
    """The log starts at `start`; `removed` entries are gone; `again` is the offset to ask for
    again, -1 when that was all."""

    error: int
    start: int
    removed: int
    again: int


class ApplyRetentionReply(Reply):
    """The log starts at `start`; `more` is 1 when another call has more to remove."""

    error: int
    start: int
    removed: int
    more: int


class ExpireProducersReply(Reply):
    """`removed` producers are forgotten; go on at `cursor` until it is `0`."""

    error: int
    cursor: bytes
    removed: int


CREATE = Script("log.create", CreateReply)
DELETE = Script("log.delete", DeleteReply)
DELETE_RECORDS = Script("log.delete_records", DeleteRecordsReply)
APPLY_RETENTION = Script("log.apply_retention", ApplyRetentionReply)
EXPIRE_PRODUCERS = Script("log.expire_producers", ExpireProducersReply)


def create(
    keys: Keys, topic: str, partition: int, *, topic_id: str, format: str, mode: str, bits: int
) -> Call[CreateReply]:
    """The partition has an empty log, unless this topic's is there already."""
    k = keys.partition(topic, partition)
    return Call(CREATE, (k.log, k.stream), (topic_id, format, mode, bits))


def delete(keys: Keys, topic: str, partition: int, *, topic_id: str) -> Call[DeleteReply]:
    """Nothing of the partition is left, if it was that topic's."""
    k = keys.partition(topic, partition)
    parts = [key for key in k.all if key != k.log]
    return Call(DELETE, (k.log, *parts), (topic_id,))


def delete_records(
    keys: Keys, topic: str, partition: int, *, topic_id: str, before: int, steps: int = 256
) -> Call[DeleteRecordsReply]:
    """Every record below `before` is gone, or so many index steps of them; -1 means the end."""
    k = keys.partition(topic, partition)
    return Call(DELETE_RECORDS, (k.stream, k.log, k.index), (topic_id, before, steps))


def apply_retention(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    retention_ms: int,
    retention_bytes: int,
    steps: int,
) -> Call[ApplyRetentionReply]:
    """What retention lets go of is gone, at most `steps` index steps of it."""
    k = keys.partition(topic, partition)
    return Call(
        APPLY_RETENTION,
        (k.stream, k.log, k.index),
        (topic_id, retention_ms, retention_bytes, steps),
    )


_CLASSES = (JOB_IDS_FROM, KEEP_JOB_MS, IDS_FROM, KEEP_MS)


def expire_producers(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    cursor: bytes,
    silence_ms: int,
) -> Call[ExpireProducersReply]:
    """Some of the partition's silent producers are forgotten; tasks of Spark later: those of jobs,
    which may yet be tried again, and latest those of writers that may come back."""
    k = keys.partition(topic, partition)
    return Call(EXPIRE_PRODUCERS, (k.producers,), (cursor, silence_ms, *_CLASSES))
