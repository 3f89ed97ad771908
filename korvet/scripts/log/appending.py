"""Appending batches, alone or several for one partition in one call."""

from collections.abc import Sequence

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


class GatherReply(Reply):
    """An answer per batch, in their order; none when `error` holds for all of them."""

    error: int
    answers: list[AppendReply]

    def of(self, batches: int) -> list[AppendReply]:
        """An answer for each of so many batches."""
        if not self.error:
            return self.answers
        return [AppendReply(self.error, -1, -1, -1, -1, 0)] * batches


BATCH_AT, NEWEST_AT, FIELDS_AT = 2, 4, 9
APPEND = Script("log.append", AppendReply)
GATHER = Script("log.gather", GatherReply)


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
    batch = (count, size, max_timestamp, producer_id, producer_epoch, base_sequence, transaction)
    return Call(
        APPEND,
        (k.stream, k.log, k.index, k.producers, k.open),
        (topic_id, stamp, *batch, *fields),
    )


def gather(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    stamp: int,
    batches: Sequence[Sequence[Arg]],
) -> Call[GatherReply]:
    """Each batch stands in the log, or nothing of it does; `batch_of` an append's call is one."""
    k = keys.partition(topic, partition)
    args: list[Arg] = [topic_id, stamp]
    for batch in batches:
        args.append(len(batch))
        args += batch
    return Call(GATHER, (k.stream, k.log, k.index, k.producers, k.open), args)


def batch_of(call: Call[AppendReply]) -> Sequence[Arg]:
    """What an append's call says of its batch."""
    return call.args[BATCH_AT:]


def count_of(call: Call[AppendReply]) -> int:
    """How many records an append's call is to store."""
    count = call.args[BATCH_AT]
    assert isinstance(count, int)
    return count


def newest_of(call: Call[AppendReply]) -> int:
    """The newest timestamp of these records."""
    newest = call.args[NEWEST_AT]
    assert isinstance(newest, int)
    return newest


def whole_batch(call: Call[AppendReply]) -> Arg | None:
    """The batch that an append's call is to store byte for byte; None where it stores fields."""
    return call.args[FIELDS_AT] if len(call.args) == FIELDS_AT + 1 else None
