"""What a partition knows of transactions."""

from collections.abc import Sequence

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, Reply, Script


class BeginReply(Reply):
    """The partition knows of the transaction, unless `error` says why not."""

    error: int


class MarkReply(Reply):
    """`offset` is the marker's, -1 when there was nothing to end."""

    error: int
    offset: int
    stable: int


class CloseReply(Reply):
    """`transaction` is an open one that was not named, `offset` the marker's; -1 for neither."""

    error: int
    transaction: int
    offset: int
    stable: int


BEGIN = Script("log.begin", BeginReply)
MARK = Script("log.mark", MarkReply)
CLOSE = Script("log.close", CloseReply)


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


def close(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    raised: int,
    transaction: int,
    committed: int,
    size: int,
    fields: Sequence[Arg],
) -> Call[CloseReply]:
    """The transaction, which nobody else will end, is over in the partition."""
    k = keys.partition(topic, partition)
    who = (producer_id, producer_epoch, coordinator_epoch, raised)
    return Call(
        CLOSE,
        (k.stream, k.log, k.producers, k.open, k.aborted),
        (topic_id, *who, transaction, committed, size, *fields),
    )
