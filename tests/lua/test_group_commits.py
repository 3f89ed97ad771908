"""Committed offsets: permission to commit, retention, deletion, and the group's expiry."""

from random import Random

import pytest

from korvet.base.errors import ErrorCode
from korvet.groups.offset_commit import CommittedOffset, parse_commit, parse_field
from korvet.scripts.call import Signal
from korvet.scripts.calls.group import DeleteOffsetsReply
from korvet.testing import LuaRunner
from tests.lua.groups import KEYS, RETENTION_MS, SESSION_MS, TOPIC_ID, Group
from tests.support.store_runners import Runner

FIELD = KEYS.partition("orders", 0).stream


def test_a_commit_stores_offset_epoch_topic_and_metadata(runner: Runner) -> None:
    group = Group(runner)
    assert group.commit(2**52, metadata="as far as this, and further") == ErrorCode.NONE
    raw = runner.command("HGET", "korvet:group:readers:offsets", "korvet:orders:0")
    assert isinstance(raw, bytes)
    found = parse_commit(raw)
    assert found is not None and abs(found.time_ms - runner.now_ms()) < 5000
    expected = CommittedOffset(2**52, 0, found.time_ms, TOPIC_ID, "as far as this, and further")
    assert found == expected


def test_an_offset_written_by_hand_is_a_commit() -> None:
    assert parse_commit(b"17") == CommittedOffset(17)
    assert parse_commit(b"nonsense") is None
    assert parse_field(b"korvet:orders:3") == ("orders", 3)
    assert parse_field(b"a:b:orders:3") == ("orders", 3)
    assert parse_field(b"orders") is None


def test_members_and_simple_consumers_commit(runner: Runner) -> None:
    group = Group(runner)
    assert group.commit(1) == ErrorCode.NONE
    (member,), generation = group.stable()
    assert group.commit(2, member=member, generation=generation) == ErrorCode.NONE
    group.leave((member, ""))
    assert group.commit(3) == ErrorCode.NONE
    assert group.committed() == 3


def test_members_may_commit_while_they_join_again(runner: Runner) -> None:
    group = Group(runner)
    (leader, other), generation = group.stable(2)
    group.join(leader)
    assert group.commit(5, member=other, generation=generation) == ErrorCode.NONE
    group.join(other)
    late = group.commit(6, member=other, generation=generation)
    assert late == ErrorCode.ILLEGAL_GENERATION
    assert group.committed() == 5


@pytest.mark.parametrize("seed", range(5))
def test_a_static_member_is_removed_a_session_after_its_last_commit(
    lua: LuaRunner, seed: int
) -> None:
    random = Random(seed)
    group = Group(lua)
    (member,), generation = group.stable()
    lua.advance(random.randrange(SESSION_MS))
    assert group.heartbeat(member, generation) == ErrorCode.NONE
    lua.advance(random.randrange(SESSION_MS // 20))
    assert group.commit(5, member=member, generation=generation) == ErrorCode.NONE
    lua.advance(SESSION_MS - 1)
    group.tick()
    assert group.state == "Stable"
    lua.advance(1)
    group.tick()
    assert group.state == "Empty"


def test_a_members_commit_reports_the_next_deadline(runner: Runner) -> None:
    group = Group(runner)
    (member,), generation = group.stable()
    reply = group.run(
        lambda _: KEYS.group(group.name).commit(
            KEYS.commit_rows([("orders", 0, 1, 0, TOPIC_ID, "")]),
            member=member,
            instance="",
            generation=generation,
            allow_member_epoch=0,
            is_registered=1,
            retention_ms=-1,
        )
    )
    assert (reply.error, 0 < reply.wait_ms <= SESSION_MS) == (ErrorCode.NONE, True)


def test_a_group_is_registered_before_its_first_write(runner: Runner) -> None:
    call = KEYS.group("readers").commit(
        KEYS.commit_rows([("orders", 0, 1, 0, TOPIC_ID, "")]),
        member="",
        instance="",
        generation=-1,
        allow_member_epoch=1,
        is_registered=0,
        retention_ms=-1,
    )
    assert runner.run(call).error == Signal.REGISTER_FIRST
    group = Group(runner)
    assert group.keys() == []
    assert group.commit(1) == ErrorCode.NONE
    assert runner.command("HGET", KEYS.groups(), "readers") == b"1"
    assert runner.command("HGET", KEYS.groups(), ":version") == b"1"


def test_a_deleted_group_leaves_no_key_and_can_be_unregistered(runner: Runner) -> None:
    group = Group(runner)
    (member,), generation = group.stable()
    group.commit(1, member=member, generation=generation)
    group.leave((member, ""))
    for commits in (0, 2):
        changed = runner.run(KEYS.group(group.name).delete(commits=commits))
        assert changed.error == Signal.GROUP_CHANGED
    assert group.committed() == 1
    assert group.delete().error == ErrorCode.NONE
    assert group.keys() == []
    assert runner.run(KEYS.group_unregister(group="readers", mark=b"0")).removed == 0
    assert runner.run(KEYS.group_unregister(group="readers", mark=b"1")).removed == 1
    assert runner.command("HGETALL", KEYS.groups()) in ([b":version", b"2"], {b":version": b"2"})


def test_offsets_are_deleted_only_of_an_unchanged_group(runner: Runner) -> None:
    group = Group(runner)
    group.commit(1)

    def forget(state: str, generation: int) -> DeleteOffsetsReply:
        return runner.run(
            KEYS.group("readers").delete_offsets([FIELD], state=state, generation=generation)
        )

    moved = Signal.GROUP_CHANGED
    assert forget("Stable", 0).error == moved
    assert forget("Empty", 1).error == moved
    assert group.committed() == 1
    assert forget("Empty", 0).removed == 1
    assert forget("Empty", 0).removed == 0
    assert group.committed() is None


def test_commits_of_a_simple_consumer_expire_after_the_retention(lua: LuaRunner) -> None:
    group = Group(lua)
    group.commit(1, partition=0)
    lua.advance(RETENTION_MS // 2)
    group.commit(2, partition=1)
    lua.advance(RETENTION_MS // 2)
    group.tick()
    assert (group.committed(0), group.committed(1)) == (None, 2)
    lua.advance(RETENTION_MS // 2)
    reply = group.tick()
    assert (reply.gone, group.keys()) == (1, [])


def test_commits_outlive_the_last_member_by_the_retention(lua: LuaRunner) -> None:
    group = Group(lua)
    (member,), generation = group.stable(session_ms=2 * RETENTION_MS)
    group.commit(1, member=member, generation=generation)
    lua.advance(RETENTION_MS + 1)
    group.tick()
    assert group.committed() == 1
    group.leave((member, ""))
    lua.advance(RETENTION_MS - 1)
    group.tick()
    assert group.committed() == 1
    lua.advance(1)
    reply = group.tick()
    assert (reply.expired, reply.gone, group.keys()) == ([FIELD.encode()], 1, [])


def test_a_commit_may_have_its_own_retention(lua: LuaRunner) -> None:
    group = Group(lua)
    group.commit(1, retention_ms=120_000)
    lua.advance(60_000)
    assert group.tick().gone == 0
    lua.advance(60_000)
    assert group.tick().gone == 1


def test_a_shorter_retention_applies_from_the_next_check_on(lua: LuaRunner) -> None:
    group = Group(lua)
    group.commit(1)
    lua.advance(60_000)
    assert group.tick(retention_ms=60_000).gone == 1


@pytest.mark.parametrize("name", ["", "x" * 300, "a{b}c:d%e\x01", "größe"])
def test_any_group_id_is_valid(runner: Runner, name: str) -> None:
    group = Group(runner, name)
    assert group.commit(7) == ErrorCode.NONE
    assert group.committed() == 7
    group.stable()
    assert group.describe().size == 1


def test_a_due_group_is_claimed_once_and_released_without_a_next_tick(lua: LuaRunner) -> None:
    lua.run(KEYS.group_schedule_tick(group="readers", after_ms=1000))
    claim = KEYS.group_claim_due(hold_ms=10_000, limit=10)
    assert lua.run(claim).groups == []
    lua.advance(1000)
    claimed = lua.run(claim)
    assert claimed.groups == [b"readers"]
    assert lua.run(claim).groups == []
    settle = KEYS.group_release_claim(group="readers", held_until=claimed.held_until, after_ms=-1)
    assert lua.run(settle).released == 1
    assert lua.command("ZRANGE", KEYS.groups_due(), 0, -1) == [b":clock"]
    assert lua.run(claim).groups == []
    assert lua.command("EXISTS", KEYS.groups_due()) == 0


def test_a_group_scheduled_during_a_tick_is_ticked_again(lua: LuaRunner) -> None:
    lua.run(KEYS.group_schedule_tick(group="readers", after_ms=0))
    claimed = lua.run(KEYS.group_claim_due(hold_ms=10_000, limit=10))
    lua.run(KEYS.group_schedule_tick(group="readers", after_ms=60_000))
    settle = KEYS.group_release_claim(group="readers", held_until=claimed.held_until, after_ms=-1)
    assert lua.run(settle).released == 0
    lua.advance(10_000)
    assert lua.run(KEYS.group_claim_due(hold_ms=10_000, limit=10)).groups == [b"readers"]


def test_many_commits_are_checked_in_pages(runner: Runner) -> None:
    """A tick over 50,000 commits blocked Redis for half a second, once per expired commit."""
    group = Group(runner)
    group.commit(1)
    keys = KEYS.group(group.name)
    row = runner.command("HGET", keys.offsets, FIELD)
    assert isinstance(row, bytes)
    for first in range(0, 9_000, 1_000):
        names = (KEYS.partition("many", number).stream for number in range(first, first + 1_000))
        runner.command("HSET", keys.offsets, *(x for name in names for x in (name, row)))
    looks = 0
    for retention_ms in (100, 0):
        expired: set[bytes] = set()
        moment, wait_ms, gone = 1, 1, 0
        while 0 <= wait_ms <= 1_000 and not gone:
            runner.command("ZADD", keys.deadlines, moment, ":offsets")
            reply = group.tick(retention_ms=retention_ms * RETENTION_MS)
            wait_ms, gone, looks = reply.wait_ms, reply.gone, looks + 1
            assert len(reply.expired) < 5_000
            expired.update(reply.expired)
        assert len(expired) == (0 if retention_ms else 9_001)
        assert retention_ms == 0 or wait_ms > 60_000
    assert looks >= 5
    assert runner.command("EXISTS", keys.offsets, keys.group, keys.deadlines) == 0


def test_a_check_in_pages_is_repeated_after_a_minute(lua: LuaRunner) -> None:
    """Commits of single partitions expire at different moments: each caused a check of all."""
    group = Group(lua)
    group.commit(1)
    keys = KEYS.group(group.name)
    for number in range(6_000):
        text = f"1 -1 {lua.now_ms() + number} -1 {TOPIC_ID} "
        lua.command("HSET", keys.offsets, KEYS.partition("many", number).stream, text)
    lua.advance(RETENTION_MS + 1)
    waits = []
    for _ in range(4):
        reply = group.tick()
        waits.append(reply.wait_ms)
        lua.advance(reply.wait_ms)
    assert waits[:-2] == [1_000, 60_000]
    assert lua.command("EXISTS", keys.offsets) == 0
