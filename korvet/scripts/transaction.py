"""The mirror of lua/transaction: calls of the transaction coordinator.

A member is `p:<topic>:<partition>` or `g:<group id>`.
"""

from collections.abc import Sequence

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script, encode_group


class InitReply(Reply):
    """`fresh` 1: nothing was written, the call needs an unused producer id."""

    error: int
    producer_id: int
    producer_epoch: int
    fresh: int


class AddPartitionsReply(Reply):
    """`transaction` is the number of the open transaction among those of the id."""

    error: int
    transaction: int


class EndReply(Reply):
    """`pending` 1: the end is decided, its markers are not written yet."""

    error: int
    producer_id: int
    producer_epoch: int
    fresh: int
    pending: int
    marker_id: int
    marker_epoch: int
    transaction: int
    members: list[bytes]


class CompleteReply(Reply):
    """`done` is 0 if the transaction had ended before."""

    error: int
    done: int


class ExpireReply(Reply):
    """`wait_ms` is the time to the next check, -1 for none; `pending` as in EndReply."""

    error: int
    wait_ms: int
    pending: int
    committed: int
    marker_id: int
    marker_epoch: int
    transaction: int
    members: list[bytes]


class DescribeReply(Reply):
    """The state of a transactional id; times in ms since 1970."""

    error: int
    state: bytes
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started: int
    now_ms: int
    transaction: int
    members: list[bytes]


class ScheduleCheckReply(Reply):
    """`changed` is 0 if another call has scheduled a check since."""

    error: int
    changed: int


class ListDueReply(Reply):
    """`ids` is flat: an encoded id, and the moment of its check in ms."""

    error: int
    ids: list[bytes]


FIRST = -2
"""`seen_epoch` of the first call of a request."""
INIT = Script("transaction.init", InitReply)
ADD_PARTITIONS = Script("transaction.add_partitions", AddPartitionsReply)
END = Script("transaction.end", EndReply)
COMPLETE = Script("transaction.complete", CompleteReply)
EXPIRE = Script("transaction.expire", ExpireReply)
VERIFY = Script("transaction.verify", AddPartitionsReply)
DESCRIBE = Script("transaction.describe", DescribeReply)
SCHEDULE_CHECK = Script("transaction.schedule_check", ScheduleCheckReply)
LIST_DUE = Script("transaction.list_due", ListDueReply)


def init(
    keys: Keys,
    transactional_id: str,
    *,
    timeout_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    fresh_id: int = -1,
    seen_epoch: int = FIRST,
) -> Call[InitReply]:
    """Give the id's producer an id and an epoch that fences earlier producers."""
    k = keys.transaction(transactional_id)
    return Call(
        INIT, (k.transaction,), (timeout_ms, producer_id, producer_epoch, fresh_id, seen_epoch)
    )


def add_partitions(
    keys: Keys,
    transactional_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    members: Sequence[str],
) -> Call[AddPartitionsReply]:
    """Add members to the producer's transaction, and begin it if none is open."""
    k = keys.transaction(transactional_id)
    return Call(
        ADD_PARTITIONS, (k.transaction, k.participants), (producer_id, producer_epoch, *members)
    )


def end(
    keys: Keys,
    transactional_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: int,
    bump: int,
    fresh_id: int = -1,
    number: int = -1,
) -> Call[EndReply]:
    """Decide how the transaction ends."""
    k = keys.transaction(transactional_id)
    return Call(
        END,
        (k.transaction, k.participants),
        (producer_id, producer_epoch, committed, bump, fresh_id, number),
    )


def complete(keys: Keys, transactional_id: str, *, transaction: int) -> Call[CompleteReply]:
    """End the transaction of that number after its markers are written."""
    k = keys.transaction(transactional_id)
    return Call(COMPLETE, (k.transaction, k.participants), (transaction,))


def expire(
    keys: Keys, transactional_id: str, *, forget_ms: int, completion_timeout_ms: int
) -> Call[ExpireReply]:
    """Apply the id's timeouts."""
    k = keys.transaction(transactional_id)
    return Call(EXPIRE, (k.transaction, k.participants), (forget_ms, completion_timeout_ms))


def describe(keys: Keys, transactional_id: str) -> Call[DescribeReply]:
    """Return the state of the id."""
    k = keys.transaction(transactional_id)
    return Call(DESCRIBE, (k.transaction, k.participants))


def verify(
    keys: Keys, transactional_id: str, *, producer_id: int, producer_epoch: int, member: str
) -> Call[AddPartitionsReply]:
    """Check that the member is in the producer's open transaction."""
    k = keys.transaction(transactional_id)
    return Call(VERIFY, (k.transaction, k.participants), (producer_id, producer_epoch, member))


def schedule_check(
    keys: Keys, *, id: str, after_ms: int, seen: int = -1
) -> Call[ScheduleCheckReply]:
    """Schedule the id's timeout check in `after_ms`; -1 removes it."""
    return Call(SCHEDULE_CHECK, (keys.transactions(),), (encode_group(id), after_ms, seen))


def list_due(keys: Keys, *, limit: int) -> Call[ListDueReply]:
    """Return the ids whose timeout check is due."""
    return Call(LIST_DUE, (keys.transactions(),), (limit,))
