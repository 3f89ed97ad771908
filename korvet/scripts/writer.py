"""The mirror of lua/writer: exactly-once writes of Spark jobs."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class ClaimProducerIdReply(Reply):
    """`producer_id` belongs to the task; `committed` is the last epoch that needs no repeat."""

    error: int
    producer_id: int
    committed: int


class CommitReply(Reply):
    """`committed` is the last epoch that needs no repeat."""

    error: int
    committed: int


class PinPartitionsReply(Reply):
    """`partitions` is the number for the epoch, -1 if it has passed.

    `turn` is the partition that gets the first rows.
    """

    error: int
    partitions: int
    turn: int


class PinPlanReply(Reply):
    """`plan` is the writer's plan; `committed` the last epoch that needs no repeat."""

    error: int
    plan: bytes
    committed: int


CLAIM_PRODUCER_ID = Script("writer.claim_producer_id", ClaimProducerIdReply)
COMMIT = Script("writer.commit", CommitReply)
PIN_PLAN = Script("writer.pin_plan", PinPlanReply)
PIN_PARTITIONS = Script("writer.pin_partitions", PinPartitionsReply)

KEEP_MS = 366 * 86_400_000
"""Milliseconds for which a silent writer and its tasks' appends are kept."""
KEEP_JOB_MS = 7 * 86_400_000
"""Milliseconds for which the tasks of a finished job are kept: Spark may retry a task."""
IDS_FROM = 1 << 52
"""The first producer id of writers that may return; Lua counts exactly up to 2^53."""
JOB_IDS_FROM = 1 << 51
"""The first producer id of one-time jobs.

From this id on, a partition never takes a producer's later batch first (log.append).
"""


def claim_producer_id(
    keys: Keys, writer_id: str, *, slot: str, producer_id: int, keep_ms: int
) -> Call[ClaimProducerIdReply]:
    """Return the producer id of the task `slot`; -1 for `producer_id` only asks for it."""
    return Call(CLAIM_PRODUCER_ID, (keys.writer(writer_id),), (slot, producer_id, keep_ms))


def commit(
    keys: Keys, writer_id: str, *, epoch: int, keep_ms: int, last: int = 0
) -> Call[CommitReply]:
    """Mark the epoch as committed; with 1 for `last` also end the writer and drop its tasks."""
    return Call(COMMIT, (keys.writer(writer_id),), (epoch, keep_ms, last))


def pin_partitions(
    keys: Keys, writer_id: str, *, topic_id: str, epoch: int, partitions: int, turn: int
) -> Call[PinPartitionsReply]:
    """Pin the partitions over which all attempts at the epoch spread a topic's rows."""
    return Call(PIN_PARTITIONS, (keys.writer(writer_id),), (topic_id, epoch, partitions, turn))


def pin_plan(keys: Keys, writer_id: str, *, plan: bytes, keep_ms: int) -> Call[PinPlanReply]:
    """Pin the writer's plan to that of its first run."""
    return Call(PIN_PLAN, (keys.writer(writer_id),), (plan, keep_ms))
