"""lua/group/pend and resolve: offsets that count once their transaction is committed."""

from korvet.errors import ErrorCode
from korvet.scripts import group as scripts
from korvet.scripts.group import ResolveReply
from tests.lua.groups import KEYS, RETENTION_MS, TOPIC_ID, Group
from tests.lua.harness import LuaRunner
from tests.runners import Runner

MINUTE_MS = 60_000


def pend(
    group: Group,
    offset: int = 5,
    *,
    number: int = 1,
    epoch: int = 0,
    member: str = "",
    generation: int = -1,
) -> ErrorCode:
    """TxnOffsetCommit of one partition by producer 9."""
    reply = group.run(
        lambda registered: scripts.pend(
            KEYS,
            group.name,
            [("orders", 0, offset, 0, TOPIC_ID, "")],
            member=member,
            instance="",
            generation=generation,
            registered=registered,
            producer_id=9,
            producer_epoch=epoch,
            transaction=number,
        )
    )
    return ErrorCode(reply.error)


def resolve(group: Group, *, committed: bool, number: int = 1) -> ResolveReply:
    """The end of producer 9's transaction of that number."""
    return group.runner.run(
        scripts.resolve(
            KEYS,
            group.name,
            producer_id=9,
            producer_epoch=0,
            transaction=number,
            committed=int(committed),
        )
    )


def test_offsets_of_a_group_nobody_has_joined_count_with_the_commit(runner: Runner) -> None:
    group = Group(runner)
    assert pend(group) == ErrorCode.NONE
    assert group.committed() is None
    resolve(group, committed=True)
    assert group.committed() == 5
    assert group.state == "Empty"


def test_offsets_of_a_member_count_with_the_commit_and_go_with_the_abort(runner: Runner) -> None:
    group = Group(runner)
    (member,), generation = group.stable()
    assert pend(group, 5, member=member, generation=generation) == ErrorCode.NONE
    resolve(group, committed=True)
    assert pend(group, 8, number=2, member=member, generation=generation) == ErrorCode.NONE
    resolve(group, committed=False, number=2)
    assert group.committed() == 5


def test_strangers_and_late_offsets_are_refused(runner: Runner) -> None:
    group = Group(runner)
    assert pend(group, generation=3) == ErrorCode.GROUP_ID_NOT_FOUND
    (member,), generation = group.stable()
    assert pend(group, member="x", generation=generation) == ErrorCode.UNKNOWN_MEMBER_ID
    stale = pend(group, member=member, generation=generation + 1)
    assert stale == ErrorCode.ILLEGAL_GENERATION
    assert pend(group, epoch=1) == ErrorCode.NONE
    assert pend(group, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    resolve(group, committed=False)
    assert pend(group, epoch=1) == ErrorCode.INVALID_TXN_STATE


def test_a_group_stays_while_its_offsets_wait_for_a_long_transaction(lua: LuaRunner) -> None:
    group = Group(lua)
    (member,), generation = group.stable()
    pend(group, member=member, generation=generation)
    group.leave((member, ""))
    for _ in range(14):
        lua.advance(MINUTE_MS)
        assert not group.tick(retention_ms=RETENTION_MS).gone
    resolve(group, committed=True)
    assert group.committed() == 5


def test_an_aborted_transaction_keeps_no_empty_group(lua: LuaRunner) -> None:
    group = Group(lua)
    pend(group)
    resolve(group, committed=False)
    lua.advance(MINUTE_MS)
    assert group.tick().gone
    assert group.keys() == []


def test_a_group_that_never_was_leaves_no_key_for_good(runner: Runner) -> None:
    group = Group(runner)
    waiting = KEYS.group(group.name).waiting
    resolve(group, committed=True)
    assert 0 < int(str(runner.command("PTTL", waiting))) <= 24 * 60 * MINUTE_MS
    assert pend(group) == ErrorCode.INVALID_TXN_STATE
    assert pend(group, number=2) == ErrorCode.NONE
    assert runner.command("PTTL", waiting) == -1, "what waits is kept"
    resolve(group, committed=True, number=2)
    assert runner.command("PTTL", waiting) == -1
    assert group.committed() == 5
