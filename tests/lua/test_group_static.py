"""Check static members: they rejoin under a new id with their assignment."""

import pytest

from korvet.base.errors import ErrorCode
from korvet.testing import LuaRunner
from tests.lua.groups import SESSION_MS, Group
from tests.support.store_runners import Runner


def pair(group: Group) -> tuple[str, str, int]:
    """Make a group Stable with two static members; return leader, follower, generation."""
    one = group.join(instance="one").member.decode()
    two = group.join(instance="two").member.decode()
    reply = group.join(one, instance="one")
    group.sync(one, reply.generation, ((one, b"first"), (two, b"second")), instance="one")
    group.sync(two, reply.generation, instance="two")
    return one, two, reply.generation


def test_a_static_follower_rejoins_without_a_rebalance(runner: Runner) -> None:
    group = Group(runner)
    one, two, generation = pair(group)
    reply = group.join(instance="two")
    back = reply.member.decode()
    assert (reply.error, reply.waiting, reply.generation, reply.rebalances) == (0, 0, generation, 0)
    assert (reply.leader.decode(), reply.members) == (one, [])
    assert back not in (one, two)
    assert group.sync(back, generation, instance="two").assignment == b"second"
    assert group.heartbeat(one, generation, "one") == ErrorCode.NONE


@pytest.mark.parametrize("skip", [0, 1])
def test_a_static_leader_rejoins_without_a_rebalance(runner: Runner, skip: int) -> None:
    group = Group(runner)
    one, two, generation = pair(group)
    reply = group.join(instance="one", skip=skip)
    back = reply.member.decode()
    assert (reply.waiting, reply.generation, reply.skip) == (0, generation, skip)
    if skip:
        assert (reply.leader.decode(), len(reply.members)) == (back, 6)
    else:
        # An old client would compute an assignment if the response named it as the leader.
        assert (reply.leader.decode(), reply.members) == (one, [])
    assert group.sync(back, generation, instance="one").assignment == b"first"
    assert group.heartbeat(two, generation, "two") == ErrorCode.NONE
    assert group.describe().leader.decode() == back


def test_rejoining_with_another_protocol_is_a_rebalance(runner: Runner) -> None:
    group = Group(runner)
    protocols = (("range", b"r"), ("sticky", b"s"))
    member = group.join(protocols=protocols, instance="one").member.decode()
    group.sync(member, 1, instance="one")
    reply = group.join(protocols=protocols[::-1], instance="one")
    assert (reply.generation, reply.protocol, reply.rebalances) == (2, b"sticky", 1)


def test_rejoining_between_join_and_sync_is_a_rebalance(runner: Runner) -> None:
    group = Group(runner)
    one, _two, generation = pair(group)
    group.join(one, instance="one")
    reply = group.join(instance="two")
    assert group.poll_join(one, "one").generation == generation + 1
    assert reply.waiting == 0
    later = group.join(instance="two")
    assert later.waiting
    assert group.heartbeat(one, generation + 1, "one") == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_silent_static_member_stays_until_its_session_expires(lua: LuaRunner) -> None:
    group = Group(lua)
    one, two, generation = pair(group)
    group.join(one, instance="one", rebalance_ms=1000)
    lua.advance(SESSION_MS - 1)
    assert group.poll_join(one, "one").waiting or group.describe().size == 2
    group.leave(("", "two"))
    reply = group.poll_join(one, "one")
    assert (reply.waiting, reply.generation) == (0, generation + 1)
    assert group.heartbeat(two, generation, "two") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_can_be_removed_by_its_instance_id(runner: Runner) -> None:
    group = Group(runner)
    pair(group)
    reply = group.leave(("", "two"), ("", "three"), ("unknown", ""))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert reply.results == [ErrorCode.NONE, unknown, unknown]
    assert group.describe().size == 1


def test_the_group_waits_for_static_members_until_another_member_joins(
    lua: LuaRunner,
) -> None:
    group = Group(lua)
    one, two, generation = pair(group)
    three = group.join(rebalance_ms=5000).member.decode()
    group.leave((three, ""))
    assert group.state == "PreparingRebalance"
    lua.advance(SESSION_MS)
    assert group.state == "Empty"
    for member, instance in ((one, "one"), (two, "two")):
        assert group.heartbeat(member, generation, instance) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_takes_no_instance_from_its_member(runner: Runner) -> None:
    group = Group(runner)
    holder = group.join(instance="i").member.decode()
    handed_out = group.join(require_member_id=1).member.decode()
    assert group.join(handed_out, instance="i").error == ErrorCode.FENCED_INSTANCE_ID
    assert group.join(handed_out, instance="j").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat(holder, 1, "i") == ErrorCode.NONE
    assert group.join(handed_out).waiting


def test_a_static_member_that_rejoins_early_waits_for_its_first_generation(
    lua: LuaRunner,
) -> None:
    group = Group(lua)
    group.join("")
    group.join(instance="one")
    back = group.join(instance="one").member.decode()
    for _ in range(3):
        lua.advance(SESSION_MS // 2)
        group.heartbeat("m1", 1)
    assert group.poll_join(back, "one").waiting
