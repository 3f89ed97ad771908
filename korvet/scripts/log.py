"""The mirror of lua/log: calls on one partition's log. Offsets are ints, times ms since 1970."""

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


class BoundsReply(Reply):
    """`start` is the stored log start; `first` and `next` enclose the live records."""

    error: int
    start: int
    first: int
    next: int
    epoch: int
    bytes: int
    records: int
    newest: int
    stable: int


class SeekReply(Reply):
    """Everything before `offset` is older than `timestamp`."""

    error: int
    offset: int
    timestamp: int


class TruncateReply(Reply):
    """The log starts at `start`; `removed` entries are gone."""

    error: int
    start: int
    removed: int


class RetainReply(Reply):
    """The log starts at `start`; `more` is 1 when another call has more to remove."""

    error: int
    start: int
    removed: int
    more: int


class OpenReply(Reply):
    """`opened` is 1 when the log was made now."""

    error: int
    opened: int


class DropReply(Reply):
    """`dropped` is 1 when the partition is gone now."""

    error: int
    dropped: int


OPEN = Script("log.open", OpenReply)
DROP = Script("log.drop", DropReply)


class AdvanceReply(Reply):
    """`records` lie between the offset asked about and `offset`."""

    error: int
    offset: int
    records: int


class FollowReply(Reply):
    """`acked` entries are no longer pending."""

    error: int
    acked: int


class UnfollowReply(Reply):
    """`removed` is 1 when there was such a group."""

    error: int
    removed: int


class LagReply(Reply):
    """`records` stand at or behind the offset."""

    error: int
    records: int
    next: int
    newest: int


class ForgetReply(Reply):
    """`removed` producers are forgotten; go on at `cursor` until it is `0`."""

    error: int
    cursor: bytes
    removed: int


FORGET = Script("log.forget", ForgetReply)


class DeliverReply(Reply):
    """What lies from `first` to `last` is the reader's; both -1 for nothing."""

    error: int
    first: int
    last: int


DELIVER = Script("log.deliver", DeliverReply)
LAG = Script("log.lag", LagReply)
FOLLOW = Script("log.follow", FollowReply)
UNFOLLOW = Script("log.unfollow", UnfollowReply)


class BeginReply(Reply):
    """The partition knows of the transaction, unless `error` says why not."""

    error: int


class MarkReply(Reply):
    """`offset` is the marker's, -1 when there was nothing to end."""

    error: int
    offset: int
    stable: int


class SiftReply(Reply):
    """What a compaction may touch; `due` 0: there is nothing to do."""

    error: int
    due: int
    start: int
    cleaned: int
    limit: int
    bytes: int
    records: int
    tombstones: int


class CarryReply(Reply):
    """`carried` entries stand in the twin now."""

    error: int
    carried: int


class PutReply(Reply):
    """The entry stands in the twin."""

    error: int


class SwapReply(Reply):
    """`more` 1: there was too much behind the limit, call again."""

    error: int
    more: int


APPEND = Script("log.append", AppendReply)
GATHER = Script("log.gather", GatherReply)
BATCH_AT, NEWEST_AT, FIELDS_AT = 2, 4, 9
BOUNDS = Script("log.bounds", BoundsReply)
SEEK = Script("log.seek", SeekReply)
TRUNCATE = Script("log.truncate", TruncateReply)
RETAIN = Script("log.retain", RetainReply)
ADVANCE = Script("log.advance", AdvanceReply)
BEGIN = Script("log.begin", BeginReply)
MARK = Script("log.mark", MarkReply)
SIFT = Script("log.sift", SiftReply)
CARRY = Script("log.carry", CarryReply)
PUT = Script("log.put", PutReply)
SWAP = Script("log.swap", SwapReply)


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


def begin(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    producer_id: int,
    producer_epoch: int,
    transaction: int,
) -> Call[BeginReply]:
    """The partition takes records of the producer's transaction of that number."""
    k = keys.partition(topic, partition)
    return Call(BEGIN, (k.log, k.producers), (topic_id, producer_id, producer_epoch, transaction))


def mark(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    producer_id: int,
    producer_epoch: int,
    transaction: int,
    committed: int,
    size: int,
    fields: Sequence[Arg],
) -> Call[MarkReply]:
    """The transaction is over in the partition; a second call changes nothing."""
    k = keys.partition(topic, partition)
    return Call(
        MARK,
        (k.stream, k.log, k.producers, k.open, k.aborted),
        (topic_id, producer_id, producer_epoch, transaction, committed, size, *fields),
    )


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


def bounds(keys: Keys, topic: str, partition: int, *, topic_id: str) -> Call[BoundsReply]:
    """Where one partition begins and ends. An empty `topic_id` takes whichever is there."""
    k = keys.partition(topic, partition)
    return Call(BOUNDS, (k.stream, k.log), (topic_id,))


def seek(
    keys: Keys, topic: str, partition: int, *, topic_id: str, timestamp: int
) -> Call[SeekReply]:
    """Where to scan from for the first record at or after `timestamp`; -3 asks for the newest."""
    k = keys.partition(topic, partition)
    return Call(SEEK, (k.log, k.index), (topic_id, timestamp))


def truncate(
    keys: Keys, topic: str, partition: int, *, topic_id: str, before: int
) -> Call[TruncateReply]:
    """Every record below `before` is gone; -1 means the end."""
    k = keys.partition(topic, partition)
    return Call(TRUNCATE, (k.stream, k.log, k.index), (topic_id, before))


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


def advance(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    offset: int,
    records: int,
    end: int,
) -> Call[AdvanceReply]:
    """The offset behind `records` records from `offset` on, at most `end`."""
    k = keys.partition(topic, partition)
    return Call(ADVANCE, (k.stream, k.log, k.index), (topic_id, offset, records, end))


def follow(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    group: str,
    topic_id: str,
    offset: int,
    move: int,
) -> Call[FollowReply]:
    """The Redis group wants `offset` next, and nothing below is pending."""
    k = keys.partition(topic, partition)
    return Call(FOLLOW, (k.stream, k.log), (group, topic_id, offset, move))


def unfollow(keys: Keys, topic: str, partition: int, *, group: str) -> Call[UnfollowReply]:
    """The Redis group is gone from this partition."""
    k = keys.partition(topic, partition)
    return Call(UNFOLLOW, (k.stream,), (group,))


def lag(keys: Keys, topic: str, partition: int, *, topic_id: str, offset: int) -> Call[LagReply]:
    """How many records there are from `offset` on."""
    k = keys.partition(topic, partition)
    return Call(LAG, (k.stream, k.log, k.index), (topic_id, offset))


def forget(
    keys: Keys, topic: str, partition: int, *, cursor: bytes, silence_ms: int
) -> Call[ForgetReply]:
    """Some of the partition's silent producers are forgotten."""
    k = keys.partition(topic, partition)
    return Call(FORGET, (k.producers,), (cursor, silence_ms))


def deliver(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    group: str,
    consumer: str,
    topic_id: str,
    offset: int,
    count: int,
    claim: int,
) -> Call[DeliverReply]:
    """A reader of a Redis group is given what it may read now."""
    k = keys.partition(topic, partition)
    return Call(DELIVER, (k.stream, k.log), (group, consumer, topic_id, offset, count, claim))


def sift(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    token: str,
    lag_ms: int,
    tombstone_ms: int,
    dirty: int,
) -> Call[SiftReply]:
    """What a compaction by `token` may touch is known."""
    k = keys.partition(topic, partition)
    return Call(SIFT, (k.log, k.index, k.compacted), (topic_id, token, lag_ms, tombstone_ms, dirty))


def carry(
    keys: Keys, topic: str, partition: int, ranges: Sequence[str], *, token: str
) -> Call[CarryReply]:
    """The entries of these ranges (first id, last id, first id, ...) stand in the twin too."""
    k = keys.partition(topic, partition)
    return Call(CARRY, (k.stream, k.log, k.compacted), (token, *ranges))


def put(
    keys: Keys, topic: str, partition: int, *, token: str, id: str, fields: Sequence[Arg]
) -> Call[PutReply]:
    """A rewritten entry stands in the twin."""
    k = keys.partition(topic, partition)
    return Call(PUT, (k.log, k.compacted), (token, id, *fields))


def swap(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    token: str,
    start: int,
    limit: int,
    cleaned: int,
    cleaned_bytes: int,
    start_bytes: int,
    start_records: int,
    tombstones: int,
    tombstone_ms: int,
    at_most: int,
    rows: Sequence[str],
) -> Call[SwapReply]:
    """The twin is the log."""
    k = keys.partition(topic, partition)
    return Call(
        SWAP,
        (k.stream, k.log, k.index, k.compacted, k.aborted),
        (
            topic_id,
            token,
            start,
            limit,
            cleaned,
            cleaned_bytes,
            start_bytes,
            start_records,
            tombstones,
            tombstone_ms,
            at_most,
            *rows,
        ),
    )
