"""Check group.txn_commit and group.txn_complete: offsets committed with a transaction."""

from collections.abc import Iterable

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.calls.group import TxnCompleteReply
from korvet.testing import LuaRunner
from tests.lua.groups import KEYS, RETENTION_MS, TOPIC_ID, Group
from tests.support.store_runners import Runner

MINUTE_MS = 60_000


def txn_commit(
    group: Group,
    offset: int = 5,
    *,
    number: int = 1,
    epoch: int = 0,
    member: str = "",
    generation: int = -1,
    producer_id: int = 9,
    partitions: Iterable[int] = (0,),
) -> ErrorCode:
    """Send a TxnOffsetCommit of partition 0, by producer 9 unless given."""
    reply = group.run(
        lambda registered: KEYS.group(group.name).txn_commit(
            KEYS.commit_rows(
                ("orders", partition, offset, 0, TOPIC_ID, "") for partition in partitions
            ),
            member=member,
            instance="",
            generation=generation,
            is_registered=registered,
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction=number,
        )
    )
    return ErrorCode(reply.error)


def txn_complete(
    group: Group, *, committed: bool, number: int = 1, producer_id: int = 9
) -> TxnCompleteReply:
    """End the producer's transaction of that number."""
    return group.runner.run(
        KEYS.group(group.name).txn_complete(
            producer_id=producer_id, producer_epoch=0, transaction=number, committed=int(committed)
        )
    )


def test_offsets_of_a_group_without_members_are_committed_with_the_transaction(
    runner: Runner,
) -> None:
    group = Group(runner)
    assert txn_commit(group) == ErrorCode.NONE
    assert group.committed() is None
    txn_complete(group, committed=True)
    assert group.committed() == 5
    assert group.state == "Empty"


def test_offsets_of_a_member_are_committed_or_discarded_with_the_transaction(
    runner: Runner,
) -> None:
    group = Group(runner)
    (member,), generation = group.stable()
    assert txn_commit(group, 5, member=member, generation=generation) == ErrorCode.NONE
    txn_complete(group, committed=True)
    assert txn_commit(group, 8, number=2, member=member, generation=generation) == ErrorCode.NONE
    txn_complete(group, committed=False, number=2)
    assert group.committed() == 5


def test_unknown_members_and_late_offsets_are_refused(runner: Runner) -> None:
    group = Group(runner)
    assert txn_commit(group, generation=3) == ErrorCode.GROUP_ID_NOT_FOUND
    (member,), generation = group.stable()
    assert txn_commit(group, member="x", generation=generation) == ErrorCode.UNKNOWN_MEMBER_ID
    stale = txn_commit(group, member=member, generation=generation + 1)
    assert stale == ErrorCode.ILLEGAL_GENERATION
    assert txn_commit(group, epoch=1) == ErrorCode.NONE
    assert txn_commit(group, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    txn_complete(group, committed=False)
    assert txn_commit(group, epoch=1) == ErrorCode.INVALID_TXN_STATE


def test_a_group_is_not_deleted_while_it_has_pending_offsets(lua: LuaRunner) -> None:
    group = Group(lua)
    (member,), generation = group.stable()
    txn_commit(group, member=member, generation=generation)
    group.leave((member, ""))
    for _ in range(14):
        lua.advance(MINUTE_MS)
        assert not group.tick(retention_ms=RETENTION_MS).gone
    txn_complete(group, committed=True)
    assert group.committed() == 5


def test_an_aborted_transaction_keeps_no_empty_group(lua: LuaRunner) -> None:
    group = Group(lua)
    txn_commit(group)
    txn_complete(group, committed=False)
    lua.advance(MINUTE_MS)
    assert group.tick().gone
    assert group.keys() == [KEYS.group(group.name).txn_offsets], "for a day"


def test_a_group_that_never_existed_leaves_no_key_for_good(runner: Runner) -> None:
    group = Group(runner)
    waiting = KEYS.group(group.name).txn_offsets
    txn_complete(group, committed=True)
    assert 0 < int(str(runner.command("PTTL", waiting))) <= 24 * 60 * MINUTE_MS
    assert txn_commit(group) == ErrorCode.INVALID_TXN_STATE
    assert txn_commit(group, number=2) == ErrorCode.NONE
    assert runner.command("PTTL", waiting) == -1, "pending offsets are kept"
    txn_complete(group, committed=True, number=2)
    assert runner.command("PTTL", waiting) == -1
    assert group.committed() == 5


def later(runner: Runner) -> None:
    """Set the clock."""
    if isinstance(runner, LuaRunner):
        runner.advance(1)
        return
    before = runner.now_ms()
    while runner.now_ms() == before:
        pass


def test_a_later_commit_is_not_overwritten_by_the_end_of_a_transaction(
    runner: Runner,
) -> None:
    group = Group(runner)
    txn_commit(group, 100)
    later(runner)
    group.commit(200)
    assert txn_complete(group, committed=True).committed == []
    assert group.committed() == 200
    txn_commit(group, 300, number=2)
    assert txn_complete(group, committed=True, number=2).committed != []
    assert group.committed() == 300


def test_of_two_transactions_the_later_offsets_are_committed(
    runner: Runner,
) -> None:
    group = Group(runner)
    txn_commit(group, 100, producer_id=8)
    later(runner)
    txn_commit(group, 150, producer_id=9)
    txn_complete(group, committed=True, producer_id=9)
    txn_complete(group, committed=True, producer_id=8)
    assert group.committed() == 150


def test_a_transaction_commits_after_the_clock_was_set_back(lua: LuaRunner) -> None:
    group = Group(lua)
    group.commit(100)
    lua.advance(-MINUTE_MS)
    txn_commit(group, 200)
    txn_complete(group, committed=True)
    assert group.committed() == 200


def test_a_new_producer_prunes_some_old_ones_of_many(
    runner: Runner,
) -> None:
    """A check of all 100,000 producers blocked Redis for a third of a second per new one."""
    group = Group(runner)
    group.commit(1)
    waiting = KEYS.group(group.name).txn_offsets
    old_ms = runner.now_ms() - 61 * MINUTE_MS
    for producer_id in range(100, 1_200):
        runner.command("HSET", waiting, producer_id, f"3 0 0 {old_ms} 0")
    runner.command("HSET", waiting, 9, f"1 0 1 {old_ms} 0")
    txn_commit(group, 100)
    assert runner.command("HLEN", waiting) == 1_101
    for producer_id in range(10_000, 10_010):
        before = runner.command("HLEN", waiting)
        if producer_id < 10_005:
            txn_commit(group, 200, producer_id=producer_id)
        else:
            txn_complete(group, committed=False, producer_id=producer_id)
        assert before <= 1_000 or runner.command("HLEN", waiting) < before
    left = runner.command("HKEYS", waiting)
    assert isinstance(left, list)
    assert 900 < len(left) <= 1_000
    assert {b"9", b"10009"} <= {each if isinstance(each, bytes) else each.encode() for each in left}
    txn_complete(group, committed=True, producer_id=10_000)
    assert group.committed() == 200


def test_ended_transactions_are_known_longer_than_a_deleted_group(runner: Runner) -> None:
    """Late offsets of an aborted transaction were committed with the producer's next one."""
    group = Group(runner)
    assert txn_commit(group, 5) == ErrorCode.NONE
    txn_complete(group, committed=False)
    assert txn_commit(group, 6, producer_id=8) == ErrorCode.NONE
    assert group.delete().error == ErrorCode.NONE
    keys = KEYS.group(group.name)
    assert runner.command("EXISTS", keys.group) == 0
    assert txn_commit(group, 5) == ErrorCode.INVALID_TXN_STATE
    assert 0 < int(str(runner.command("PTTL", keys.txn_offsets))) <= 24 * 60 * MINUTE_MS
    assert txn_commit(group, 7, number=2) == ErrorCode.NONE
    txn_complete(group, committed=True, number=2)
    txn_complete(group, committed=True, producer_id=8)
    assert group.committed() == 7


def test_ended_transactions_are_known_longer_than_an_expired_group(lua: LuaRunner) -> None:
    """No broker would end it again: late offsets kept the group for good, and aborted offsets were
    committed with the producer's next transaction."""
    group = Group(lua)
    assert txn_commit(group, 5) == ErrorCode.NONE
    txn_complete(group, committed=False)
    for _ in range(3):
        lua.advance(MINUTE_MS)
        group.tick()
    keys = KEYS.group(group.name)
    assert lua.command("EXISTS", keys.group) == 0
    assert txn_commit(group, 5) == ErrorCode.INVALID_TXN_STATE
    assert 0 < int(str(lua.command("PTTL", keys.txn_offsets))) <= 24 * 60 * MINUTE_MS
    assert txn_commit(group, 7, number=2) == ErrorCode.NONE
    assert lua.command("PTTL", keys.txn_offsets) == -1
    txn_complete(group, committed=True, number=2)
    assert group.committed() == 7


STEP = 500


def offsets(group: Group) -> dict[int, int]:
    """Return the committed offsets by partition."""
    flat = group.runner.command("HGETALL", KEYS.group_offsets(group.name))
    assert isinstance(flat, list)
    words = [word if isinstance(word, str) else word.decode() for word in flat]
    return {
        int(field.rpartition(":")[2]): int(text.split()[0])
        for field, text in zip(words[::2], words[1::2], strict=True)
    }


def test_many_pending_offsets_are_committed_in_steps_that_any_broker_continues(
    runner: Runner,
) -> None:
    group, many = Group(runner), range(2 * STEP + 3)
    txn_commit(group, 5, partitions=many[: STEP + 1])
    txn_commit(group, 6, partitions=many)
    txn_commit(group, 8, partitions=[0], producer_id=8)
    replies = [txn_complete(group, committed=True) for _ in range(4)]
    assert [reply.more for reply in replies] == [1, 1, 0, 0]
    assert [len(reply.committed) // 2 for reply in replies] == [STEP, STEP, 3, 0]
    assert offsets(group) == dict.fromkeys(many, 6)
    assert txn_commit(group, 9) == ErrorCode.INVALID_TXN_STATE
    txn_complete(group, committed=True, producer_id=8)
    assert offsets(group)[0] == 8
    assert runner.command("EXISTS", KEYS.group(group.name).txn_pending) == 0


def test_what_comes_between_two_steps_has_its_place(runner: Runner) -> None:
    group, many = Group(runner), range(2 * STEP)
    txn_commit(group, 5, partitions=many)
    assert txn_complete(group, committed=True).more
    later(runner)
    group.commit(7)
    assert txn_commit(group, 6, partitions=[many[-1], many[-1] + 1]) == ErrorCode.NONE
    while txn_complete(group, committed=True).more:
        pass
    expected = dict.fromkeys(many, 5) | {0: 7, many[-1]: 6, many[-1] + 1: 6}
    assert offsets(group) == expected
    assert not txn_complete(group, committed=True).committed


def test_an_older_producer_adds_nothing_between_two_steps(runner: Runner) -> None:
    group = Group(runner)
    txn_commit(group, 5, partitions=range(STEP + 1))
    call = KEYS.group(group.name).txn_complete(
        producer_id=9, producer_epoch=1, transaction=1, committed=0
    )
    assert group.runner.run(call).more
    assert txn_commit(group, 6) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not group.runner.run(call).more
    assert offsets(group) == {}
    assert runner.command("EXISTS", KEYS.group(group.name).txn_pending) == 0


@pytest.mark.parametrize("committed", [True, False])
def test_a_group_that_is_deleted_between_two_steps_gets_no_offsets(
    runner: Runner, *, committed: bool
) -> None:
    group = Group(runner)
    txn_commit(group, 5, partitions=range(STEP + 2))
    txn_complete(group, committed=committed)
    assert group.delete().error == ErrorCode.NONE
    assert txn_commit(group, 4, producer_id=8) == ErrorCode.NONE
    assert not txn_complete(group, committed=committed).more
    assert offsets(group) == {}
    txn_complete(group, committed=True, producer_id=8)
    assert offsets(group) == {0: 4}
    assert txn_commit(group, 6, number=2, partitions=[1, 2]) == ErrorCode.NONE
    txn_complete(group, committed=True, number=2)
    assert offsets(group) == {0: 4, 1: 6, 2: 6}


def test_pending_offsets_of_before_a_deletion_do_not_hide_later_ones(runner: Runner) -> None:
    group = Group(runner)
    txn_commit(group, 5, partitions=range(STEP + 2))
    assert group.delete().error == ErrorCode.NONE
    txn_commit(group, 6, partitions=[3])
    assert txn_complete(group, committed=True).more
    assert not txn_complete(group, committed=True).more
    assert offsets(group) == {3: 6}
