"""The arguments of an append: what they say about the batch, and how several calls are joined.

log.append and schedule.add begin with the same arguments.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from korvet.scripts.call import Arg, Call
from korvet.scripts.calls.namespace import LogAppendManyReply
from korvet.scripts.calls.partition import AppendReply
from korvet.scripts.keys import Keys

LogBatches = tuple[str, int, str, int, Sequence[Sequence[Arg]]]
"""Topic, partition, topic id, log.append's stamp, and the `batch_of` of each call."""
STAMP_AT, BATCH_AT, SIZE_AT, NEWEST_AT, PRODUCER_AT, TRANSACTION_AT, FIELDS_AT = 1, 2, 3, 4, 5, 8, 9
LATER_PART = 2
"""Added to the stamp of an append that continues a batch."""
FAR = 1 << 62
"""The highest timestamp in a log's state and index, in ms: lib.append limits it."""
EXPIRED = -2
"""A `transaction`: in none, and the producer's state may have expired in the partition."""
EXPIRED_IN_TXN = -3
"""A `transaction`: in the registered one, and the producer's state may have expired."""
ORDINARY_AT = 12
"""The index of `ordinary` of schedule.add, after what describes the batch, and the limits."""

Kind = Literal["at", "in", "cancel"]


class Row(NamedTuple):
    """Records of a produced batch that wait for one due time, or a cancellation.

    `ms` is the due time, or for the kind `in` the delay; an empty `id` is none. `size` is what they
    add to the log's size, `payload` is that of lib.schedule.
    """

    kind: Kind
    ms: int
    id: bytes
    records: int
    size: int
    max_timestamp: int
    payload: Arg


def append_many(keys: Keys, logs: Iterable[LogBatches]) -> Call[LogAppendManyReply]:
    """Append several batches to one partition or more."""
    rows: list[tuple[str, str, str, str, str, str, str, str, str]] = []
    args: list[Arg] = []
    for topic, partition, topic_id, stamp, batches in logs:
        log = keys.partition(topic, partition)
        rows.append((*log.appends, log.dedupe, log.dedupe_old, log.table, log.table_newer))
        args += (topic_id, stamp, len(batches))
        for batch in batches:
            args.append(len(batch))
            args += batch
    return keys.log_append_many(rows, args)


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
    """Return the max timestamp that the script stores for an append."""
    newest = call.args[NEWEST_AT]
    assert isinstance(newest, int)
    return min(newest, FAR)


def whole_batch(call: Call[AppendReply]) -> Arg | None:
    """Return the batch that an append stores byte for byte, None if it stores fields."""
    return call.args[FIELDS_AT] if len(call.args) == FIELDS_AT + 1 else None


def rows_of(call: Call[AppendReply]) -> tuple[list[Row], Sequence[Arg]]:
    """Return the rows of a call of schedule.add, and the fields of its ordinary records."""
    count, tail, width = call.args[ORDINARY_AT + 1], call.args[ORDINARY_AT + 4 :], len(Row._fields)
    assert isinstance(count, int)
    ends = width * count
    return [Row(*tail[at : at + width]) for at in range(0, ends, width)], tail[ends:]  # type: ignore[arg-type]
