"""Check how members join, leave, stay and are removed, step by step."""

from collections.abc import Iterable
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.keys import Keys
from korvet.testing import LuaRunner
from tests.lua.groups import KEYS, REBALANCE_MS, RETENTION_MS, SESSION_MS, Group
from tests.support.store_runners import Runner


def test_the_first_member_leads_generation_one_and_gets_its_assignment(runner: Runner) -> None:
    group = Group(runner)
    reply = group.join()
    assert (reply.error, reply.waiting, reply.generation) == (ErrorCode.NONE, 0, 1)
    assert reply.leader == reply.member == b"m1"
    assert reply.members == [b"m1", b"", b"what I read"]
    assert (reply.protocol_type, reply.protocol, reply.rebalances) == (b"consumer", b"range", 1)
    assert group.state == "CompletingRebalance"
    assigned = group.sync("m1", 1, (("m1", b"all"), ("unknown", b"lost")))
    assert (assigned.error, assigned.assignment) == (ErrorCode.NONE, b"all")
    assert group.state == "Stable"
    assert group.sync("m1", 1).assignment == b"all"


def test_a_second_member_waits_until_the_first_has_joined_again(runner: Runner) -> None:
    group = Group(runner)
    (first,), generation = group.stable()
    second = group.join(protocols=(("range", b"more"),))
    assert second.waiting
    assert group.poll_join("m2").waiting
    assert group.heartbeat(first, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.commit(7, member=first, generation=generation) == ErrorCode.NONE
    leader = group.join(first)
    assert (leader.waiting, leader.generation, leader.leader) == (0, generation + 1, b"m1")
    assert leader.members == [b"m1", b"", b"what I read", b"m2", b"", b"more"]
    follower = group.poll_join("m2")
    assert (follower.waiting, follower.generation, follower.members) == (0, generation + 1, [])
    assert not leader.skip and not follower.skip
    assert group.sync("m2", generation + 1).waiting
    group.sync(first, generation + 1, (("m1", b"a"),))
    assert group.sync("m2", generation + 1).assignment == b""


def test_the_protocols_of_all_members_share_a_limit_of_bytes(runner: Runner) -> None:
    group = Group(runner)
    words: dict[str, Any] = {"protocols": (("range", b"x" * 100),), "max_bytes": 250}
    assert [group.join(**words).error for _ in range(3)] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    group.leave(("m1", ""))
    assert group.join(**words).error == 0


def test_a_repeated_request_gets_the_same_response(runner: Runner) -> None:
    group = Group(runner)
    group.stable()
    assert group.join().waiting
    assert group.join("m2").waiting
    leader = group.join("m1")
    again = group.join("m1")
    assert (again.generation, again.members) == (leader.generation, leader.members)
    follower = group.poll_join("m2")
    again = group.join("m2")
    assert (again.error, again.generation, again.members) == (0, follower.generation, [])
    group.sync("m1", leader.generation, (("m1", b"a"), ("m2", b"b")))
    assert group.join("m2").generation == leader.generation
    assert [group.sync("m2", leader.generation).assignment for _ in range(2)] == [b"b", b"b"]
    assert group.state == "Stable"


def test_a_stable_leader_that_joins_begins_a_rebalance(runner: Runner) -> None:
    group = Group(runner)
    (leader, other), generation = group.stable(2)
    assert group.join(leader).waiting
    assert group.heartbeat(other, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_with_a_new_subscription_begins_a_rebalance(runner: Runner) -> None:
    group = Group(runner)
    (_, other), _ = group.stable(2)
    assert group.join(other, protocols=(("range", b"something else"),)).waiting
    assert group.state == "PreparingRebalance"


def test_the_protocol_is_supported_by_all_and_preferred_by_most(runner: Runner) -> None:
    group = Group(runner)
    one = (("a", b""), ("b", b"1b"), ("c", b"1c"))
    two = (("c", b"2c"), ("b", b"2b"))
    group.join(protocols=one)
    group.join(protocols=two)
    group.join(protocols=two)
    reply = group.join("m1", protocols=one)
    if reply.waiting:
        reply = group.poll_join("m1")
    assert reply.protocol == b"c"
    assert reply.members[2::3] == [b"1c", b"2c", b"2c"]


def test_a_leave_begins_a_rebalance_and_the_last_one_empties_the_group(
    runner: Runner,
) -> None:
    group = Group(runner)
    (first, second), generation = group.stable(2)
    assert group.leave((first, "")).results == [ErrorCode.NONE]
    assert group.heartbeat(first, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    reply = group.join(second)
    assert (reply.waiting, reply.leader.decode(), reply.generation) == (0, second, generation + 1)
    assert group.leave((second, "")).rebalances == 1
    described = group.describe()
    assert (described.state, described.generation, described.size) == (b"Empty", generation + 2, 0)
    assert described.protocol_type == b"consumer"


def test_waiting_members_are_notified(runner: Runner) -> None:
    if not isinstance(runner, LuaRunner):
        return
    channel = KEYS.group("readers").group
    listener = runner.redis.pubsub()
    listener.subscribe(channel)
    group = Group(runner)
    group.stable()
    cycles = 0
    while (message := listener.get_message(timeout=0)) is not None:
        cycles += message["type"] == "message"
    listener.close()
    assert cycles >= 2


def test_a_member_without_heartbeats_is_removed_after_its_session(lua: LuaRunner) -> None:
    group = Group(lua)
    (first, second), generation = group.stable(2)
    lua.advance(SESSION_MS - 1)
    assert group.heartbeat(first, generation) == ErrorCode.NONE
    lua.advance(1)
    assert group.heartbeat(first, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.heartbeat(second, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.join(first).generation == generation + 1


@pytest.mark.parametrize(
    ("present_ms", "left"), [(-1, 0), (0, 2), (1_000, 2), (5_999, 2), (6_001, 0), (60_000, 0)]
)
def test_sessions_are_renewed_when_brokers_are_present_again(
    lua: LuaRunner, present_ms: int, left: int
) -> None:
    group = Group(lua)
    (first, second), generation = group.stable(2)
    lua.advance(SESSION_MS + 1_000)
    assert group.tick(present_ms=present_ms).wait_ms == (SESSION_MS if left else 60_000)
    assert group.describe().size == left
    if left:
        assert group.heartbeat(first, generation) == ErrorCode.NONE
        lua.advance(SESSION_MS - 1)
        assert group.heartbeat(second, generation) == ErrorCode.NONE


def test_a_pending_id_from_before_an_absence_removes_no_member(
    lua: LuaRunner,
) -> None:
    group = Group(lua)
    (first, second), generation = group.stable(2)
    lua.advance(SESSION_MS - 2_000)
    group.join(require_member_id=1)
    lua.advance(4_000)
    group.tick(present_ms=100)
    assert group.heartbeats((first, "", generation), (second, "", generation)) == [0, 0]


def test_the_first_join_phase_ends_in_time_at_a_new_broker(lua: LuaRunner) -> None:
    group = Group(lua, delay_ms=3_000)
    member = group.join().member.decode()
    lua.advance(3_001)
    group.tick(present_ms=3_500)
    assert group.poll_join(member).generation == 1


def test_a_commit_renews_the_session(lua: LuaRunner) -> None:
    group = Group(lua)
    (member,), generation = group.stable()
    for _ in range(3):
        lua.advance(SESSION_MS - 1)
        assert group.commit(1, member=member, generation=generation) == ErrorCode.NONE
    assert group.heartbeat(member, generation) == ErrorCode.NONE


def test_a_rebalance_completes_without_members_that_do_not_join_again(lua: LuaRunner) -> None:
    group = Group(lua)
    (leader, other), generation = group.stable(2, session_ms=100_000)
    assert group.join(leader, session_ms=100_000).waiting
    lua.advance(REBALANCE_MS - 1)
    assert group.poll_join(leader).waiting
    lua.advance(1)
    reply = group.poll_join(leader)
    assert (reply.waiting, reply.generation) == (0, generation + 1)
    assert len(reply.members) == 3
    assert group.heartbeat(other, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_sync_are_removed(lua: LuaRunner) -> None:
    group = Group(lua)
    (leader, other), generation = group.stable(2, session_ms=100_000)
    group.join(leader, session_ms=100_000)
    group.join(other, session_ms=100_000)
    group.sync(leader, generation + 1, ((leader, b"all"),))
    assert group.state == "Stable"
    lua.advance(REBALANCE_MS)
    assert group.heartbeat(leader, generation + 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.heartbeat(other, generation + 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_wait_for_an_assignment_are_not_removed(lua: LuaRunner) -> None:
    group = Group(lua)
    (leader, other), generation = group.stable(2)
    group.join(leader)
    group.join(other)
    assert group.sync(other, generation + 1).waiting
    for _ in range(5):
        lua.advance(SESSION_MS - 1)
        assert group.heartbeat(leader, generation + 1) == ErrorCode.NONE
    assert group.sync(other, generation + 1).waiting
    group.sync(leader, generation + 1, ((other, b"some"),))
    assert group.sync(other, generation + 1).assignment == b"some"
    lua.advance(SESSION_MS)
    assert group.heartbeat(other, generation + 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_ends_the_wait_for_an_assignment(lua: LuaRunner) -> None:
    group = Group(lua)
    (leader, other), generation = group.stable(2)
    group.join(leader)
    group.join(other)
    assert group.sync(other, generation + 1).waiting
    assert group.leave((leader, "")).rebalances == 1
    assert group.sync(other, generation + 1).error == ErrorCode.REBALANCE_IN_PROGRESS
    lua.advance(SESSION_MS)
    assert group.state == "Empty"


def test_the_first_join_phase_is_extended_while_members_join(lua: LuaRunner) -> None:
    group = Group(lua, delay_ms=3000)
    assert group.join().waiting
    lua.advance(2000)
    assert group.join().waiting
    lua.advance(2000)
    assert group.poll_join("m1").waiting
    lua.advance(1999)
    assert group.poll_join("m1").waiting
    lua.advance(1)
    reply = group.poll_join("m1")
    assert (reply.waiting, reply.generation, len(reply.members)) == (0, 1, 6)


def test_the_first_join_phase_is_no_longer_than_the_rebalance_timeout(lua: LuaRunner) -> None:
    group = Group(lua, delay_ms=3000)
    waited = 0
    group.join(rebalance_ms=10_000)
    while group.poll_join("m1").waiting:
        lua.advance(1000)
        waited += 1000
        group.join(rebalance_ms=10_000)
    assert waited == 10_000


def test_an_id_that_does_not_join_in_time_is_invalidated(lua: LuaRunner) -> None:
    group = Group(lua)
    (member,), generation = group.stable(session_ms=100_000)
    assert group.join(require_member_id=1).error == ErrorCode.MEMBER_ID_REQUIRED
    assert group.join(member, session_ms=100_000).waiting
    lua.advance(SESSION_MS)
    assert group.poll_join(member).generation == generation + 1
    assert group.join("m2").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_with_only_a_pending_id_is_deleted(lua: LuaRunner) -> None:
    group = Group(lua)
    assert group.join(session_ms=100_000, require_member_id=1).error == ErrorCode.MEMBER_ID_REQUIRED
    lua.advance(60_000)
    assert not group.tick().gone
    lua.advance(40_000)
    assert not group.tick().gone
    lua.advance(20_000)
    assert group.tick().gone
    assert group.keys() == []


def test_a_pending_id_that_leaves_leaves_no_group(lua: LuaRunner) -> None:
    group = Group(lua)
    member = group.join(require_member_id=1).member.decode()
    assert group.leave((member, "")).results == [ErrorCode.NONE]
    lua.advance(60_000)
    assert group.tick().gone


def test_a_group_whose_commits_expired_is_deleted_after_its_pending_id(
    lua: LuaRunner,
) -> None:
    group = Group(lua)
    group.commit(1)
    lua.advance(RETENTION_MS - 1)
    group.tick()
    group.join(require_member_id=1)
    lua.advance(1)
    reply = group.tick()
    assert (len(reply.expired), reply.gone) == (1, 0)
    lua.advance(60_000)
    assert group.tick().gone


def test_a_new_member_whose_join_is_not_polled_is_removed_after_five_minutes(
    lua: LuaRunner,
) -> None:
    group = Group(lua)
    (leader,), generation = group.stable(session_ms=1_000_000, rebalance_ms=1_000_000)
    group.join()
    lua.advance(300_000)
    assert group.poll_join("m2").error == ErrorCode.UNKNOWN_MEMBER_ID
    reply = group.join(leader, rebalance_ms=1_000_000)
    assert (reply.waiting, reply.generation) == (0, generation + 1)


def test_groups_and_namespaces_are_independent(runner: Runner) -> None:
    one, two = Group(runner, "a:{b}%"), Group(runner, "a")
    one.stable(2)
    assert two.describe().error == ErrorCode.GROUP_ID_NOT_FOUND
    two.stable()
    assert one.describe().size == 2
    other = runner.run(Keys("other").group("a").describe(full=0))
    assert other.error == ErrorCode.GROUP_ID_NOT_FOUND


def test_sessions_are_renewed_after_brokers_were_absent(lua: LuaRunner) -> None:
    group = Group(lua)
    (first, second), generation = group.stable(2)
    lua.advance(SESSION_MS + 60_000)
    assert group.heartbeat(first, generation) == ErrorCode.NONE
    lua.advance(SESSION_MS - 1)
    assert group.heartbeat(first, generation) == ErrorCode.NONE
    lua.advance(1)
    assert group.heartbeat(first, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.heartbeat(second, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_phase_is_extended_after_brokers_were_absent(lua: LuaRunner) -> None:
    group = Group(lua)
    (leader, other), generation = group.stable(2, session_ms=100_000)
    group.join(leader, session_ms=100_000)
    lua.advance(REBALANCE_MS + 60_000)
    assert group.poll_join(leader).waiting
    group.join(other, session_ms=100_000)
    assert group.poll_join(leader).generation == generation + 1


def test_a_first_join_phase_gets_its_initial_delay_again_after_an_absence(
    lua: LuaRunner,
) -> None:
    group = Group(lua, delay_ms=3_000)
    member = group.join(rebalance_ms=300_000).member.decode()
    lua.advance(12_000)
    assert group.join(member, rebalance_ms=300_000).waiting
    lua.advance(3_000)
    assert group.poll_join(member).generation == 1


def test_a_new_member_waits_for_its_first_generation_through_an_outage(lua: LuaRunner) -> None:
    group = Group(lua)
    (leader,), generation = group.stable(session_ms=100_000, rebalance_ms=100_000)
    new = group.join().member.decode()
    lua.advance(100_000 + 6_000)
    assert group.poll_join(new).waiting
    lua.advance(SESSION_MS)
    assert group.poll_join(new).waiting
    group.join(leader, session_ms=100_000, rebalance_ms=100_000)
    assert group.poll_join(new).generation == generation + 1


def members_read(lua: LuaRunner, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record the later reads of all members; return the list of keys."""
    seen: list[bytes] = []
    execute = lua.reply_to

    def watched(words: Iterable[bytes]) -> Any:
        command = list(words)
        if command[0] == b"HGETALL":
            seen.append(command[1])
        return execute(command)

    monkeypatch.setattr(lua, "reply_to", watched)
    return seen


def test_many_leaves_at_once_read_the_members_a_few_times(
    lua: LuaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(lua)
    members, _ = group.stable(20)
    seen = members_read(lua, monkeypatch)
    reply = group.leave(*((member, "") for member in sorted(members)))
    assert set(reply.results) == {ErrorCode.NONE}
    assert 0 < len(seen) <= 4
    assert group.state == "Empty"


def test_many_missing_members_read_the_members_a_few_times(
    lua: LuaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(lua)
    members, _ = group.stable(20, session_ms=100_000)
    stays = max(members)
    group.join(stays, (("range", b"something else"),), session_ms=100_000)
    lua.advance(REBALANCE_MS)
    seen = members_read(lua, monkeypatch)
    group.tick()
    assert 0 < len(seen) <= 6
    assert group.poll_join(stays).leader.decode() == stays


def test_waiting_members_are_not_notified_of_each_removal(
    lua: LuaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(lua)
    members, generation = group.stable(5)
    leader, first, second, third, fourth = members
    group.join(leader)
    published: list[Any] = []
    execute = lua.reply_to

    def watched(words: Iterable[bytes]) -> Any:
        command = list(words)
        published.extend(command[:1] if command[0] == b"PUBLISH" else ())
        return execute(command)

    monkeypatch.setattr(lua, "reply_to", watched)
    group.leave((first, ""))
    lua.command("ZADD", KEYS.group(group.name).deadlines, lua.now_ms(), second)
    group.tick()
    assert published == []
    group.join(third)
    group.leave((third, ""))
    assert published == [b"PUBLISH"]
    assert group.poll_join(third).error == ErrorCode.UNKNOWN_MEMBER_ID
    group.leave((fourth, ""))
    assert published == [b"PUBLISH", b"PUBLISH"]
    assert group.poll_join(leader).generation == generation + 1


def test_a_rebalance_waits_a_second_for_a_pending_id(lua: LuaRunner) -> None:
    group = Group(lua)
    (leader,), generation = group.stable()
    assert group.join(require_member_id=1).error == ErrorCode.MEMBER_ID_REQUIRED
    new = group.join(require_member_id=1).member.decode()
    assert group.join(new).waiting
    assert group.join(leader).waiting
    lua.advance(999)
    assert group.poll_join(leader).waiting
    lua.advance(1)
    assert group.poll_join(leader).generation == generation + 1
    assert group.poll_join(new).generation == generation + 1


def test_a_pending_id_is_valid_for_a_session(lua: LuaRunner) -> None:
    group = Group(lua)
    (leader,), generation = group.stable()
    late = group.join(require_member_id=1).member.decode()
    lua.advance(SESSION_MS // 2)
    assert group.heartbeat(leader, generation) == ErrorCode.NONE
    assert group.join(late).waiting
    assert group.join(leader).generation == generation + 1


def test_a_join_phase_completes_at_once_without_pending_ids(lua: LuaRunner) -> None:
    group = Group(lua)
    (leader,), generation = group.stable()
    new = group.join(require_member_id=1).member.decode()
    assert group.join(new).waiting
    assert lua.command("ZSCORE", KEYS.group(group.name).deadlines, ":hold") is None
    assert group.join(leader).generation == generation + 1
