"""Appending batches, alone or several for one partition in one call."""

from collections.abc import Iterable, Sequence

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, Reply, Script


class AppendReply(Reply):
    """`base` is the batch's first offset, `previous` the log's end before it; `stored` is 0 for a
    duplicate of an earlier append."""

    error: int
    base: int
    previous: int
    start: int
    append_time: int
    stored: int


class AppendManyReply(Reply):
    """An answer per batch, in the order of the logs and of their batches. `reason` says what is
    wrong with a partition's keys, where its batches have KAFKA_STORAGE_ERROR."""

    answers: list[AppendReply]
    reason: bytes = b""


LogBatches = tuple[str, int, str, int, Sequence[Sequence[Arg]]]
"""Topic, partition, topic id, log.append's stamp, and batches for it, each `batch_of` a call."""
BATCH_AT, NEWEST_AT, PRODUCER_AT, TRANSACTION_AT, FIELDS_AT = 2, 4, 5, 8, 9
FAR = 1 << 62
"""What comes later counts as this moment in a log's state and index: Lua's numbers end at 2^63 when
they become integers, and are rounded up before."""
FORGOTTEN = -2
"""As a `transaction`: in none, and the partition may have forgotten the producer."""
FORGOTTEN_WITHIN = -3
"""The same in a transaction that the partition was told of."""
APPEND = Script("log.append", AppendReply)
APPEND_MANY = Script("log.append_many", AppendManyReply)


def append(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    stamp: int = 0,
    count: int,
    size: int,
    max_timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transaction: int = -1,
    fields: Sequence[Arg],
) -> Call[AppendReply]:
    """One producer batch stands in the log, or nothing has changed. `fields` are log.append's: in
    layout `batch` the batch alone will do."""
    k = keys.partition(topic, partition)
    newest = min(max_timestamp, FAR)
    batch = (count, size, newest, producer_id, producer_epoch, base_sequence, transaction)
    return Call(
        APPEND,
        (k.stream, k.log, k.index, k.producers, k.open_txns),
        (topic_id, stamp, *batch, *fields),
    )


def append_many(keys: Keys, logs: Iterable[LogBatches]) -> Call[AppendManyReply]:
    """Each batch stands in its log, or nothing of it does."""
    names: list[str] = []
    args: list[Arg] = []
    for topic, partition, topic_id, stamp, batches in logs:
        k = keys.partition(topic, partition)
        names += (k.stream, k.log, k.index, k.producers, k.open_txns)
        args += (topic_id, stamp, len(batches))
        for batch in batches:
            args.append(len(batch))
            args += batch
    return Call(APPEND_MANY, tuple(names), args)


def batch_of(call: Call[AppendReply]) -> Sequence[Arg]:
    """What an append's call says of its batch."""
    return call.args[BATCH_AT:]


def count_of(call: Call[AppendReply]) -> int:
    """How many records an append's call is to store."""
    count = call.args[BATCH_AT]
    assert isinstance(count, int)
    return count


def sequence_of(call: Call[AppendReply]) -> tuple[int, int, int]:
    """Producer id, epoch and base sequence of an append's call."""
    producer_id, epoch, sequence = call.args[PRODUCER_AT:TRANSACTION_AT]
    assert isinstance(producer_id, int) and isinstance(epoch, int) and isinstance(sequence, int)
    return producer_id, epoch, sequence


def begun_by(call: Call[AppendReply]) -> Call[AppendReply]:
    """The same append, by which a producer may begin whom the partition does not know."""
    forgotten = FORGOTTEN if call.args[TRANSACTION_AT] == -1 else FORGOTTEN_WITHIN
    args = [*call.args[:TRANSACTION_AT], forgotten, *call.args[FIELDS_AT:]]
    return Call(call.script, call.keys, args)


def newest_of(call: Call[AppendReply]) -> int:
    """The newest timestamp of these records."""
    newest = call.args[NEWEST_AT]
    assert isinstance(newest, int)
    return newest


def whole_batch(call: Call[AppendReply]) -> Arg | None:
    """The batch that an append's call is to store byte for byte; None where it stores fields."""
    return call.args[FIELDS_AT] if len(call.args) == FIELDS_AT + 1 else None
