"""The life of a partition's log: create, delete records, apply retention, expire, delete."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script
from korvet.scripts.writer import IDS_FROM, JOB_IDS_FROM, KEEP_JOB_MS, KEEP_MS


class CreateReply(Reply):
    """`opened` is 1 if this call created the log."""

    error: int
    opened: int


class DeleteReply(Reply):
    """`deleted` is 1 if this call deleted the partition."""

    error: int
    deleted: int


class DeleteRecordsReply(Reply):
    """The log starts at `start`; `removed` entries are deleted.

    `again` is the offset to repeat the call with, -1 if all is done.
    """

    error: int
    start: int
    removed: int
    again: int


class ApplyRetentionReply(Reply):
    """The log starts at `start`; `more` is 1 if another call has more to remove.

    `uncounted` is 1 if there are entries for log.adopt.
    """

    error: int
    start: int
    removed: int
    more: int
    uncounted: int


class AdoptReply(Reply):
    """`counted` entries are counted; `more` is 1 if another call has more to count."""

    error: int
    counted: int
    more: int


class ExpireProducersReply(Reply):
    """`removed` producers are deleted; repeat with `cursor` until it is `0`."""

    error: int
    cursor: bytes
    removed: int


CREATE = Script("log.create", CreateReply)
DELETE = Script("log.delete", DeleteReply)
DELETE_RECORDS = Script("log.delete_records", DeleteRecordsReply)
APPLY_RETENTION = Script("log.apply_retention", ApplyRetentionReply)
ADOPT = Script("log.adopt", AdoptReply)
EXPIRE_PRODUCERS = Script("log.expire_producers", ExpireProducersReply)


def create(
    keys: Keys, topic: str, partition: int, *, topic_id: str, format: str, mode: str, bits: int
) -> Call[CreateReply]:
    """Create an empty log for the partition, unless this topic has one."""
    k = keys.partition(topic, partition)
    return Call(CREATE, (k.log, k.stream), (topic_id, format, mode, bits))


def delete(keys: Keys, topic: str, partition: int, *, topic_id: str) -> Call[DeleteReply]:
    """Delete everything of the partition, if it belongs to that topic."""
    k = keys.partition(topic, partition)
    parts = [key for key in k.all if key != k.log]
    return Call(DELETE, (k.log, *parts), (topic_id,))


def delete_records(
    keys: Keys, topic: str, partition: int, *, topic_id: str, before: int, steps: int = 256
) -> Call[DeleteRecordsReply]:
    """Delete every record below `before`, at most that many index steps; -1 means the end."""
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
    is_local: int = 0,
) -> Call[ApplyRetentionReply]:
    """Delete what retention has expired, at most `steps` index steps of it.

    If `is_local` is 1, delete only records that are in segments too, and keep the log start.
    """
    k = keys.partition(topic, partition)
    return Call(
        APPLY_RETENTION,
        (k.stream, k.log, k.index),
        (topic_id, retention_ms, retention_bytes, steps, is_local),
    )


def adopt(keys: Keys, topic: str, partition: int, *, topic_id: str) -> Call[AdoptReply]:
    """Count entries that another program has added to the partition, or removed from it."""
    k = keys.partition(topic, partition)
    return Call(ADOPT, (k.stream, k.log, k.index), (topic_id,))


def expire_producers(
    keys: Keys, topic: str, partition: int, *, cursor: bytes, silence_ms: int
) -> Call[ExpireProducersReply]:
    """Delete the state of some silent producers of the partition.

    Producers of Spark expire later: tasks of jobs, which Spark may retry, and last those of writers
    that may return.
    """
    k = keys.partition(topic, partition)
    classes = (JOB_IDS_FROM, KEEP_JOB_MS, IDS_FROM, KEEP_MS)
    return Call(EXPIRE_PRODUCERS, (k.producers,), (cursor, silence_ms, *classes))
