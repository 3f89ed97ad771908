"""The mirror of lua/writer: what makes a Spark job's writes happen once."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class ClaimProducerIdReply(Reply):
    """`producer_id` is the task's own; `committed` the last epoch that needs no repeating."""

    error: int
    producer_id: int
    committed: int


class CommitReply(Reply):
    """`committed` is the last epoch that needs no repeating."""

    error: int
    committed: int


class PinPartitionsReply(Reply):
    """`partitions` is how many there are for the epoch, -1 when it has passed; `turn` says which of
    them is the first to be given rows."""

    error: int
    partitions: int
    turn: int


class PinPlanReply(Reply):
    """`plan` is the writer's own; `committed` the last epoch that needs no repeating."""

    error: int
    plan: bytes
    committed: int


CLAIM_PRODUCER_ID = Script("writer.claim_producer_id", ClaimProducerIdReply)
COMMIT = Script("writer.commit", CommitReply)
PIN_PLAN = Script("writer.pin_plan", PinPlanReply)
PIN_PARTITIONS = Script("writer.pin_partitions", PinPartitionsReply)

KEEP_MS = 366 * 86_400_000
"""A writer is remembered for so long after it was last heard of, and what its tasks appended."""
KEEP_JOB_MS = 7 * 86_400_000
"""So long are the tasks of a job known that nobody can run again: its own may be tried again."""
IDS_FROM = 1 << 52
"""Producer ids of writers that may come back begin here; Lua counts exactly up to 2^53."""
JOB_IDS_FROM = 1 << 51
"""And those of jobs that do not. From here on a partition takes no producer's later batches first:
the log.append script knows."""


def claim_producer_id(
    keys: Keys, writer_id: str, *, slot: str, producer_id: int, keep_ms: int
) -> Call[ClaimProducerIdReply]:
    """The task `slot` has a producer id; -1 for `producer_id` only asks for it."""
    return Call(CLAIM_PRODUCER_ID, (keys.writer(writer_id),), (slot, producer_id, keep_ms))


def commit(
    keys: Keys, writer_id: str, *, epoch: int, keep_ms: int, last: int = 0
) -> Call[CommitReply]:
    """The epoch is done; 1 for `last`: and so is the writer, of whose tasks nothing is kept."""
    return Call(COMMIT, (keys.writer(writer_id),), (epoch, keep_ms, last))


def pin_partitions(
    keys: Keys, writer_id: str, *, topic_id: str, epoch: int, partitions: int, turn: int
) -> Call[PinPartitionsReply]:
    """Over how many partitions all attempts at the epoch spread a topic's rows, and from which."""
    return Call(PIN_PARTITIONS, (keys.writer(writer_id),), (topic_id, epoch, partitions, turn))


def pin_plan(keys: Keys, writer_id: str, *, plan: bytes, keep_ms: int) -> Call[PinPlanReply]:
    """The writer's plan is what its first run said."""
    return Call(PIN_PLAN, (keys.writer(writer_id),), (plan, keep_ms))
