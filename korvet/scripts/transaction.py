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


class AddReply(Reply):
    """`transaction` is the number of the open transaction among those of the id."""

    error: int
    transaction: int


class FinishReply(Reply):
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


class LookReply(Reply):
    """`wait_ms` says when to look again, -1 never; `pending` as in FinishReply."""

    error: int
    wait_ms: int
    pending: int
    committed: int
    marker_id: int
    marker_epoch: int
    transaction: int
    members: list[bytes]


class ViewReply(Reply):
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


class WatchReply(Reply):
    """`watched` is 0 when somebody else asked meanwhile."""

    error: int
    watched: int


class DueReply(Reply):
    """`ids` is flat: an encoded id, and the moment it stands under."""

    error: int
    ids: list[bytes]


INIT = Script("transaction.init", InitReply)
ADD = Script("transaction.add", AddReply)
FINISH = Script("transaction.finish", FinishReply)
COMPLETE = Script("transaction.complete", CompleteReply)
LOOK = Script("transaction.look", LookReply)
VERIFY = Script("transaction.verify", AddReply)
VIEW = Script("transaction.view", ViewReply)
WATCH = Script("transaction.watch", WatchReply)
DUE = Script("transaction.due", DueReply)


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


def add(
    keys: Keys,
    transactional_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    members: Sequence[str],
) -> Call[AddReply]:
    """The transaction is open and the members take part in it."""
    k = keys.transaction(transactional_id)
    return Call(ADD, (k.transaction, k.participants), (producer_id, producer_epoch, *members))


def finish(
    keys: Keys,
    transactional_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: int,
    bump: int,
    fresh_id: int = -1,
) -> Call[FinishReply]:
    """It is decided how the transaction ends."""
    k = keys.transaction(transactional_id)
    return Call(
        FINISH,
        (k.transaction, k.participants),
        (producer_id, producer_epoch, committed, bump, fresh_id),
    )


def complete(keys: Keys, transactional_id: str, *, transaction: int) -> Call[CompleteReply]:
    """The transaction of that number is over."""
    k = keys.transaction(transactional_id)
    return Call(COMPLETE, (k.transaction, k.participants), (transaction,))


def look(keys: Keys, transactional_id: str, *, forget_ms: int, patience_ms: int) -> Call[LookReply]:
    """What its timeouts ask for is decided."""
    k = keys.transaction(transactional_id)
    return Call(LOOK, (k.transaction, k.participants), (forget_ms, patience_ms))


def view(keys: Keys, transactional_id: str) -> Call[ViewReply]:
    """What is known of the id."""
    k = keys.transaction(transactional_id)
    return Call(VIEW, (k.transaction, k.participants))


def verify(
    keys: Keys, transactional_id: str, *, producer_id: int, producer_epoch: int, member: str
) -> Call[AddReply]:
    """Whether the member takes part in the producer's open transaction."""
    k = keys.transaction(transactional_id)
    return Call(VERIFY, (k.transaction, k.participants), (producer_id, producer_epoch, member))


def watch(keys: Keys, *, id: str, after_ms: int, seen: int = -1) -> Call[WatchReply]:
    """The id is looked at in `after_ms`, or never again where that is -1."""
    return Call(WATCH, (keys.transactions(),), (encode_group(id), after_ms, seen))


def due(keys: Keys, *, limit: int) -> Call[DueReply]:
    """The ids somebody has to look at now."""
    return Call(DUE, (keys.transactions(),), (limit,))
