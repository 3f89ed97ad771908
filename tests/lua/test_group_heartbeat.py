"""Check heartbeats in one call: a result for each member, and no write soon after another."""

from random import Random

import pytest

from korvet.base.errors import ErrorCode
from korvet.groups.heartbeat_batcher import heartbeats_of
from korvet.scripts.call import Signal
from korvet.testing import LuaRunner
from tests.lua.groups import KEYS, SESSION_MS, Group
from tests.support.redis_servers import TestServer
from tests.support.store_runners import Runner, StoreRunner

LATE = SESSION_MS // 10
"""Max ms after its session at which a silent member is removed."""


def test_members_of_several_groups_have_an_answer_each(runner: Runner) -> None:
    one, two = Group(runner, "one"), Group(runner, "two")
    (old,), generation = one.stable()
    instance = two.join(instance="i").member.decode()
    moved = two.join(instance="i").member.decode()
    joining = two.join().member.decode()
    begun = two.describe(0).generation
    assert (two.state, instance != moved) == ("PreparingRebalance", True)
    beats = [
        ("one", old, "", generation),
        ("two", instance, "i", 1),
        ("one", old, "", generation + 1),
        ("none", "m", "", 1),
        ("one", "unknown", "", generation),
        ("two", joining, "", begun + 1),
        ("two", moved, "i", begun),
        ("one", old, "unknown", generation),
        ("one", old, "", generation),
    ]
    reply = runner.run(heartbeats_of(KEYS, beats))
    alone = [runner.run(heartbeats_of(KEYS, [beat])).errors[0] for beat in beats]
    assert reply.errors == alone
    assert reply.errors == [
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert len(reply.waits) == 3
    assert reply.waits[2] == -1


def test_a_group_with_an_expired_deadline_refuses_only_its_own_members(lua: LuaRunner) -> None:
    one, two = Group(lua, "one"), Group(lua, "two")
    (first,), generation = one.stable()
    lua.advance(1)
    (second,), other = two.stable()
    lua.advance(SESSION_MS - 1)
    reply = lua.run(
        heartbeats_of(KEYS, [("one", first, "", generation), ("two", second, "", other)])
    )
    assert reply.errors == [Signal.TICK_FIRST, ErrorCode.NONE]
    assert reply.waits[0] == 0
    assert two.state == "Stable"


@pytest.mark.parametrize("seed", range(5))
def test_a_member_is_removed_at_most_a_tenth_after_its_session(lua: LuaRunner, seed: int) -> None:
    random = Random(seed)
    group = Group(lua)
    (member,), generation = group.stable()
    for _ in range(20):
        lua.advance(random.randrange(SESSION_MS))
        assert group.heartbeat(member, generation) == ErrorCode.NONE
    lua.advance(SESSION_MS - 1)
    group.tick()
    assert group.state == "Stable"
    lua.advance(LATE)
    group.tick()
    assert group.state == "Empty"


@pytest.mark.parametrize("session_ms", [1, 5, 9, 11])
def test_a_session_may_be_shorter_than_ten_ms(lua: LuaRunner, session_ms: int) -> None:
    group = Group(lua)
    (member,), generation = group.stable(session_ms=session_ms)
    assert group.heartbeat(member, generation) == ErrorCode.NONE
    lua.advance(session_ms - 1)
    assert group.heartbeat(member, generation) == ErrorCode.NONE
    lua.advance(session_ms + 1)
    assert group.heartbeat(member, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_soon_after_another_writes_nothing(valkey_server: TestServer) -> None:
    with valkey_server.client() as client:
        client.flushall()
        group = Group(StoreRunner(client))
        (member,), generation = group.stable(session_ms=1_000_000)
        changes = []
        for _ in range(3):
            assert group.heartbeat(member, generation) == ErrorCode.NONE
            changes.append(client.info("persistence")["rdb_changes_since_last_save"])
        # A tenth of the session may end between two of them, not between two pairs.
        assert changes[0] == changes[1] or changes[1] == changes[2]
