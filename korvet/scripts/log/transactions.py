"""Transactions in one partition."""

from collections.abc import Sequence

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, ErrorReply, Reply, Script


class WriteTxnMarkerReply(Reply):
    """`offset` is the marker's, -1 if no transaction was open."""

    error: int
    offset: int
    stable: int


class AbortHangingTxnReply(Reply):
    """`transaction` is an open one that was not named, `offset` the marker's; -1 for neither."""

    error: int
    transaction: int
    offset: int
    stable: int


BEGIN_TXN = Script("log.begin_txn", ErrorReply)
WRITE_TXN_MARKER = Script("log.write_txn_marker", WriteTxnMarkerReply)
ABORT_HANGING_TXN = Script("log.abort_hanging_txn", AbortHangingTxnReply)


def begin_txn(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    producer_id: int,
    producer_epoch: int,
    transaction: int,
) -> Call[ErrorReply]:
    """Register the producer's transaction of that number in the partition."""
    k = keys.partition(topic, partition)
    return Call(
        BEGIN_TXN, (k.log, k.producers), (topic_id, producer_id, producer_epoch, transaction)
    )


def write_txn_marker(
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
) -> Call[WriteTxnMarkerReply]:
    """End the transaction in the partition; a second call changes nothing."""
    k = keys.partition(topic, partition)
    return Call(
        WRITE_TXN_MARKER,
        (k.stream, k.log, k.producers, k.open_txns, k.aborted_txns),
        (topic_id, producer_id, producer_epoch, transaction, committed, size, *fields),
    )


def abort_hanging_txn(
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
) -> Call[AbortHangingTxnReply]:
    """Abort a hanging transaction in the partition."""
    k = keys.partition(topic, partition)
    who = (producer_id, producer_epoch, coordinator_epoch, raised)
    return Call(
        ABORT_HANGING_TXN,
        (k.stream, k.log, k.producers, k.open_txns, k.aborted_txns),
        (topic_id, *who, transaction, committed, size, *fields),
    )
