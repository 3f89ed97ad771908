"""The mirror of lua/transaction: what is decided about one transactional id.

A member is `p:<topic>:<partition>` or `g:<group id>`.
"""

from collections.abc import Sequence

from korvet.keys import Keys, encode_group
from korvet.scripts.call import Call, Reply, Script


class InitReply(Reply):
    """`fresh` 1: nothing was done, the call needs a producer id nobody has had."""

    error: int
    producer_id: int
    producer_epoch: int
    fresh: int


class AddPartitionsReply(Reply):
    """`transaction` is the number of the open transaction among those of the id."""

    error: int
    transaction: int


class EndReply(Reply):
    """`pending` 1: the end is decided, its markers are still to be written."""

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
    """`done` is 0 when somebody else has completed it before."""

    error: int
    done: int


class ExpireReply(Reply):
    """`wait_ms` says when to look again, -1 never; `pending` as in EndReply."""

    error: int
    wait_ms: int
    pending: int
    committed: int
    marker_id: int
    marker_epoch: int
    transaction: int
    members: list[bytes]


class DescribeReply(Reply):
    """What is known of the id; times in ms since 1970."""

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
    """`watched` is 0 when somebody else asked meanwhile."""

    error: int
    watched: int


class ListDueReply(Reply):
    """`ids` is flat: an encoded id, and the moment it stands under."""

    error: int
    ids: list[bytes]


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
) -> Call[InitReply]:
    """The id has an epoch that fences whoever used it before."""
    k = keys.transaction(transactional_id)
    return Call(INIT, (k.transaction,), (timeout_ms, producer_id, producer_epoch, fresh_id))


def add_partitions(
    keys: Keys,
    transactional_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    members: Sequence[str],
) -> Call[AddPartitionsReply]:
    """The transaction is open and the members take part in it."""
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
) -> Call[EndReply]:
    """It is decided how the transaction ends."""
    k = keys.transaction(transactional_id)
    return Call(
        END,
        (k.transaction, k.participants),
        (producer_id, producer_epoch, committed, bump, fresh_id),
    )


def complete(keys: Keys, transactional_id: str, *, transaction: int) -> Call[CompleteReply]:
    """The transaction of that number is over."""
    k = keys.transaction(transactional_id)
    return Call(COMPLETE, (k.transaction, k.participants), (transaction,))


def expire(
    keys: Keys, transactional_id: str, *, forget_ms: int, completion_timeout_ms: int
) -> Call[ExpireReply]:
    """What its timeouts ask for is decided."""
    k = keys.transaction(transactional_id)
    return Call(EXPIRE, (k.transaction, k.participants), (forget_ms, completion_timeout_ms))


def describe(keys: Keys, transactional_id: str) -> Call[DescribeReply]:
    """What is known of the id."""
    k = keys.transaction(transactional_id)
    return Call(DESCRIBE, (k.transaction, k.participants))


def verify(
    keys: Keys, transactional_id: str, *, producer_id: int, producer_epoch: int, member: str
) -> Call[AddPartitionsReply]:
    """Whether the member takes part in the producer's open transaction."""
    k = keys.transaction(transactional_id)
    return Call(VERIFY, (k.transaction, k.participants), (producer_id, producer_epoch, member))


def schedule_check(
    keys: Keys, *, id: str, after_ms: int, seen: int = -1
) -> Call[ScheduleCheckReply]:
    """The id is looked at in `after_ms`, or never again where that is -1."""
    return Call(SCHEDULE_CHECK, (keys.transactions(),), (encode_group(id), after_ms, seen))


def list_due(keys: Keys, *, limit: int) -> Call[ListDueReply]:
    """The ids somebody has to look at now."""
    return Call(LIST_DUE, (keys.transactions(),), (limit,))
