"""Check lua/transaction: permissions of producers, and decisions."""

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.calls.transaction import InitReply
from korvet.testing import LuaRunner
from tests.lua.transactions import KEYS, TIMEOUT_MS, Coordinator, Logs
from tests.support.store_runners import Runner

LAST = 32766


@pytest.fixture
def tx(runner: Runner) -> Coordinator:
    """An unused transactional id."""
    return Coordinator(Logs(runner).create())


def rotated(tx: Coordinator) -> tuple[int, int]:
    """Return a producer whose epochs are used up."""
    reply = tx.init()
    key = "{korvet:txn:tx}:state"
    tx.runner.command("HSET", key, "epoch", LAST)
    return reply.producer_id, LAST


def test_a_new_id_gets_a_fresh_producer_and_epoch_0(tx: Coordinator) -> None:
    reply = tx.init()
    assert (reply.error, reply.producer_id, reply.producer_epoch) == (0, 1, 0)


def test_every_init_fences_the_producer_before(tx: Coordinator) -> None:
    first = tx.init()
    second = tx.init()
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    assert tx.add(first.producer_id, 0, [0]).error == ErrorCode.PRODUCER_FENCED
    assert tx.finish(first.producer_id, 0, True, False).error == ErrorCode.PRODUCER_FENCED


def test_a_producer_that_names_its_epoch_gets_the_next_and_a_repetition_the_same(
    tx: Coordinator,
) -> None:
    tx.init()
    assert tx.init(1, 0).producer_epoch == 1
    assert tx.init(1, 0).producer_epoch == 1
    tx.init()
    assert tx.init(1, 0).error == ErrorCode.PRODUCER_FENCED
    assert tx.init(7, 0).error == ErrorCode.PRODUCER_FENCED


def test_used_up_epochs_lead_to_a_fresh_producer_id(tx: Coordinator) -> None:
    producer, epoch = rotated(tx)
    reply = tx.init(producer, epoch)
    assert (reply.producer_id, reply.producer_epoch) == (2, 0)
    again = tx.init(producer, epoch)
    assert (again.producer_id, again.producer_epoch) == (2, 0)


def test_no_producer_gets_the_epoch_that_only_fences(tx: Coordinator) -> None:
    producer, epoch = rotated(tx)
    tx.add(producer, epoch, [0])
    assert tx.init(producer, epoch).error == ErrorCode.CONCURRENT_TRANSACTIONS
    tx.settle()
    for _ in range(2):
        reply = tx.init(producer, epoch)
        assert (reply.producer_id, reply.producer_epoch) == (2, 0)


def test_used_up_epochs_rotate_at_the_end_of_a_transaction_too(tx: Coordinator) -> None:
    producer, epoch = rotated(tx)
    tx.add(producer, epoch, [0])
    reply = tx.finish(producer, epoch, True, True)
    assert (reply.producer_id, reply.producer_epoch) == (2, 0)
    assert (reply.marker_id, reply.marker_epoch) == (producer, LAST + 1)
    assert tx.add(2, 0, [0]).error == ErrorCode.CONCURRENT_TRANSACTIONS
    tx.settle()
    again = tx.finish(producer, epoch, True, True)
    assert (again.error, again.producer_id, again.producer_epoch, again.pending) == (0, 2, 0, 0)
    assert tx.add(2, 0, [0]).error == 0


@pytest.mark.parametrize("bump", [False, True])
def test_strangers_and_zombies_are_refused(tx: Coordinator, bump: bool) -> None:
    assert tx.add(1, 0, [0]).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert tx.finish(1, 0, True, bump).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    tx.init()
    assert tx.add(9, 0, [0]).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert tx.finish(9, 0, True, bump).error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert tx.add(1, 5, [0]).error == ErrorCode.PRODUCER_FENCED
    assert tx.finish(1, 5, True, bump).error == ErrorCode.PRODUCER_FENCED


def test_nothing_can_be_committed_where_nothing_is_open(tx: Coordinator) -> None:
    tx.init()
    assert tx.finish(1, 0, True, False).error == ErrorCode.INVALID_TXN_STATE
    assert tx.finish(1, 0, False, False).error == ErrorCode.INVALID_TXN_STATE
    assert tx.finish(1, 0, True, True).error == ErrorCode.INVALID_TXN_STATE


def test_aborting_nothing_gives_the_next_epoch_in_the_second_protocol(tx: Coordinator) -> None:
    tx.init()
    reply = tx.finish(1, 0, False, True)
    assert (reply.error, reply.producer_epoch, reply.pending) == (0, 1, 1)
    tx.settle()
    assert tx.view().state == b"CompleteAbort"
    assert tx.finish(1, 0, False, True).producer_epoch == 1
    assert tx.finish(1, 0, True, True).error == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("bump", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_a_decision_is_final_and_a_repetition_gets_its_result(
    tx: Coordinator, committed: bool, bump: bool
) -> None:
    tx.init()
    tx.add(1, 0, [0, 1])
    decided = tx.finish(1, 0, committed, bump)
    assert decided.members and decided.pending == 1
    assert tx.finish(1, 0, committed, bump).error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert tx.finish(1, 0, not committed, bump).error == ErrorCode.INVALID_TXN_STATE
    tx.settle()
    assert tx.view().state == (b"CompleteCommit" if committed else b"CompleteAbort")
    again = tx.finish(1, 0, committed, bump)
    assert (again.error, again.pending, again.producer_epoch) == (0, 0, int(bump))
    assert tx.finish(1, 0, not committed, bump).error == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("committed", [False, True])
def test_a_request_about_an_earlier_transaction_does_not_end_the_open_one(
    tx: Coordinator, committed: bool
) -> None:
    """A client that ends transactions by EndTxn below 5 keeps its epoch."""
    tx.init()
    first = tx.add(1, 0, [0]).transaction
    assert tx.finish(1, 0, committed, False, first).transaction == first
    tx.settle()
    assert tx.finish(1, 0, committed, False, first).error == 0, "a repetition"
    second = tx.add(1, 0, [0]).transaction
    assert tx.finish(1, 0, committed, False, first).error == ErrorCode.NOT_COORDINATOR
    assert tx.view().state == b"Ongoing"
    assert tx.finish(1, 0, committed, False, second).pending == 1
    ending = tx.finish(1, 0, committed, False)
    assert (ending.error, ending.transaction) == (ErrorCode.CONCURRENT_TRANSACTIONS, second)


def test_an_init_that_was_overtaken_between_its_calls_fences_nothing(tx: Coordinator) -> None:
    tx.init()
    tx.add(1, 0, [0])

    def again(seen_epoch: int) -> InitReply:
        return tx.runner.run(
            KEYS.transaction(tx.name).init(timeout_ms=TIMEOUT_MS, seen_epoch=seen_epoch)
        )

    late = tx.init()
    assert (late.error, late.producer_epoch) == (ErrorCode.CONCURRENT_TRANSACTIONS, 1)
    tx.settle()
    assert tx.init().producer_epoch == 2
    assert again(late.producer_epoch).error == ErrorCode.NOT_COORDINATOR
    assert tx.add(1, 2, [0]).error == 0
    assert again(2).error == ErrorCode.CONCURRENT_TRANSACTIONS


def test_the_second_protocol_needs_the_new_epoch_for_the_next_transaction(tx: Coordinator) -> None:
    tx.init()
    tx.add(1, 0, [0])
    assert tx.finish(1, 0, True, True).producer_epoch == 1
    tx.settle()
    assert tx.add(1, 0, [0]).error == ErrorCode.PRODUCER_FENCED
    assert tx.add(1, 1, [0]).transaction == 2


def test_init_aborts_what_is_open_and_says_so(tx: Coordinator) -> None:
    tx.init()
    tx.add(1, 0, [0])
    assert tx.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert tx.view().state == b"PrepareAbort"
    assert tx.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert tx.finish(1, 0, True, False).error == ErrorCode.PRODUCER_FENCED
    tx.settle()
    assert tx.init().producer_epoch == 2


def test_a_producer_that_aborts_its_transaction_by_init_gets_the_next_epoch(
    tx: Coordinator,
) -> None:
    tx.init()
    tx.add(1, 0, [0])
    assert tx.init(1, 0).error == ErrorCode.CONCURRENT_TRANSACTIONS
    tx.settle()
    reply = tx.init(1, 0)
    assert (reply.error, reply.producer_id, reply.producer_epoch) == (0, 1, 1)
    assert tx.add(1, 0, [0]).error == ErrorCode.PRODUCER_FENCED
    assert tx.add(1, 1, [0]).error == 0


def test_a_zombie_that_names_its_epoch_aborts_no_transaction(tx: Coordinator) -> None:
    tx.init()
    tx.init()
    tx.add(1, 1, [0])
    assert tx.init(1, 0).error == ErrorCode.PRODUCER_FENCED
    assert tx.view().state == b"Ongoing"


def test_an_init_that_comes_late_aborts_nothing_of_what_its_repetition_began(
    tx: Coordinator,
) -> None:
    tx.init()
    assert tx.init(1, 0).producer_epoch == 1
    tx.add(1, 1, [0])
    assert tx.init(1, 0).error == ErrorCode.PRODUCER_FENCED
    assert tx.view().state == b"Ongoing"


def test_a_late_init_aborts_nothing_once_epochs_were_used_up(tx: Coordinator) -> None:
    producer, epoch = rotated(tx)
    tx.finish(producer, epoch, False, True)
    tx.settle()
    assert tx.init(producer, epoch).error == 0, "nothing is open: the response was lost"
    tx.add(tx.view().producer_id, tx.view().producer_epoch, [0])
    assert tx.init(producer, epoch).error == ErrorCode.PRODUCER_FENCED
    assert tx.view().state == b"Ongoing"


def test_a_transaction_open_too_long_is_aborted_and_its_producer_fenced(lua: LuaRunner) -> None:
    tx = Coordinator(Logs(lua).create())
    tx.init()
    lua.advance(TIMEOUT_MS * 3)
    tx.add(1, 0, [0])
    assert tx.look().wait_ms == TIMEOUT_MS
    lua.advance(TIMEOUT_MS - 1)
    assert (tx.look().wait_ms, tx.view().state) == (1, b"Ongoing")
    lua.advance(1)
    reply = tx.look()
    assert (reply.pending, reply.committed, reply.marker_epoch) == (1, 0, 1)
    for step in tx.steps(reply, False):
        step()
    for bump in (False, True):
        assert tx.finish(1, 0, False, bump).error == ErrorCode.PRODUCER_FENCED


def test_an_end_is_left_to_its_broker_for_the_completion_timeout(lua: LuaRunner) -> None:
    tx = Coordinator(Logs(lua).create())
    tx.init()
    tx.add(1, 0, [0])
    tx.finish(1, 0, True, False)
    assert tx.look(completion_timeout_ms=2000).pending == 0
    lua.advance(2000)
    reply = tx.look(completion_timeout_ms=2000)
    assert (reply.pending, reply.committed) == (1, 1)


def test_an_unused_id_expires(lua: LuaRunner) -> None:
    tx = Coordinator(Logs(lua).create())
    tx.init()
    call = KEYS.transaction("tx").expire(forget_ms=100_000, completion_timeout_ms=0)
    assert lua.run(call).wait_ms == TIMEOUT_MS
    lua.advance(100_000)
    assert lua.run(call).wait_ms == -1
    assert tx.view().error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert lua.run(call).wait_ms == -1


def due(runner: Runner) -> dict[bytes, int]:
    """Return the ids that are due for a check, and their times."""
    flat = runner.run(KEYS.transaction_list_due(limit=10)).ids
    return {id: int(moment) for id, moment in zip(flat[::2], flat[1::2], strict=True)}


def watch(runner: Runner, id: str, after_ms: int, seen: int = -1) -> int:
    return runner.run(KEYS.transaction_schedule_check(id=id, after_ms=after_ms, seen=seen)).changed


def test_ids_are_due_in_the_order_of_their_moments(runner: Runner) -> None:
    watch(runner, "later", 60_000)
    watch(runner, "last", 0)
    runner.command("ZADD", KEYS.transactions(), 2, "a second", 1, "b first", 2, "b third")
    assert list(due(runner)) == [b"b first", b"a second", b"b third", b"last"]


def test_a_check_does_not_postpone_one_scheduled_meanwhile(runner: Runner) -> None:
    watch(runner, "tx", 0)
    seen = due(runner)[b"tx"]
    assert watch(runner, "tx", 2_000) == 1
    assert (watch(runner, "tx", -1, seen), watch(runner, "tx", 60_000, seen)) == (0, 0)
    seen = due(runner)[b"tx"]
    assert watch(runner, "tx", 60_000, seen) == 1
    assert due(runner) == {}


def test_a_forgotten_id_is_not_looked_at_again(runner: Runner) -> None:
    watch(runner, "tx", 0)
    assert watch(runner, "tx", -1, due(runner)[b"tx"]) == 1
    assert due(runner) == {}
    assert watch(runner, "tx", -1) == 1
