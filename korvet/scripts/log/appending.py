"""Append record batches: one call for one batch, or one call for several partitions."""

from collections.abc import Iterable, Sequence

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, Reply, Script


class AppendReply(Reply):
    """The offsets of a batch: `base` is its first, `previous` the log end offset before it.

    `stored` is 0 for a duplicate of a stored batch.
    """

    error: int
    base: int
    previous: int
    start: int
    append_time: int
    stored: int


class AppendManyReply(Reply):
    """The replies, one per batch, in the order of the logs and of their batches.

    `reason` names the key and Redis's error if a partition's batches have KAFKA_STORAGE_ERROR.
    """

    answers: list[AppendReply]
    reason: bytes = b""


LogBatches = tuple[str, int, str, int, Sequence[Sequence[Arg]]]
"""Topic, partition, topic id, log.append's stamp, and the `batch_of` of each call."""
STAMP_AT, BATCH_AT, SIZE_AT, NEWEST_AT, PRODUCER_AT, TRANSACTION_AT, FIELDS_AT = 1, 2, 3, 4, 5, 8, 9
LATER_PART = 2
"""Added to the stamp of an append that continues a batch."""
FAR = 1 << 62
"""The highest timestamp in a log's state and index, in ms: Lua's integers end at 2^63, and its
doubles are rounded up below that."""
EXPIRED = -2
"""A `transaction`: in none, and the producer's state may have expired in the partition."""
EXPIRED_IN_TXN = -3
"""A `transaction`: in the registered one, and the producer's state may have expired."""
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
    """Append one batch. `fields` are log.append's: in layout `batch` the batch alone is enough."""
    k = keys.partition(topic, partition)
    newest = min(max_timestamp, FAR)
    batch = (count, size, newest, producer_id, producer_epoch, base_sequence, transaction)
    return Call(APPEND, k.appends, (topic_id, stamp, *batch, *fields))


def append_many(keys: Keys, logs: Iterable[LogBatches]) -> Call[AppendManyReply]:
    """Append several batches to one partition or more."""
    names: list[str] = []
    args: list[Arg] = []
    for topic, partition, topic_id, stamp, batches in logs:
        k = keys.partition(topic, partition)
        names += k.appends
        args += (topic_id, stamp, len(batches))
        for batch in batches:
            args.append(len(batch))
            args += batch
    return Call(APPEND_MANY, tuple(names), args)


def batch_of(call: Call[AppendReply]) -> Sequence[Arg]:
    """Return the arguments of an append that describe its batch."""
    return call.args[BATCH_AT:]


def count_of(call: Call[AppendReply]) -> int:
    """Return the record count of an append."""
    count = call.args[BATCH_AT]
    assert isinstance(count, int)
    return count


def size_of(call: Call[AppendReply]) -> int:
    """Return the bytes that an append adds to the log's size."""
    size = call.args[SIZE_AT]
    assert isinstance(size, int)
    return size


def sequence_of(call: Call[AppendReply]) -> tuple[int, int, int]:
    """Return producer id, epoch and base sequence of an append."""
    producer_id, epoch, sequence = call.args[PRODUCER_AT:TRANSACTION_AT]
    assert isinstance(producer_id, int) and isinstance(epoch, int) and isinstance(sequence, int)
    return producer_id, epoch, sequence


def allow_expired_producer(call: Call[AppendReply]) -> Call[AppendReply]:
    """Return the append with leave to start its producer's state at any sequence (KIP-360)."""
    expired = EXPIRED if call.args[TRANSACTION_AT] == -1 else EXPIRED_IN_TXN
    args = [*call.args[:TRANSACTION_AT], expired, *call.args[FIELDS_AT:]]
    return Call(call.script, call.keys, args)


def newest_of(call: Call[AppendReply]) -> int:
    """Return the max timestamp of an append."""
    newest = call.args[NEWEST_AT]
    assert isinstance(newest, int)
    return newest


def whole_batch(call: Call[AppendReply]) -> Arg | None:
    """Return the batch that an append stores byte for byte, None if it stores fields."""
    return call.args[FIELDS_AT] if len(call.args) == FIELDS_AT + 1 else None
