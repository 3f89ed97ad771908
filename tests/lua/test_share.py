"""Check lua/share: records that members acquire, acknowledge and get again."""

from collections.abc import Iterable
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.call import Signal
from korvet.share.service import Acknowledge
from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.lua.share import LOCK_MS, Group
from tests.lua.worst_share import STEP, held
from tests.support.store_runners import Runner

ACCEPT, RELEASE, REJECT = Acknowledge.ACCEPT, Acknowledge.RELEASE, Acknowledge.REJECT
GAP, RENEW = Acknowledge.GAP, Acknowledge.RENEW


def group_in(runner: Runner, records: int = 10, **words: Any) -> Group:
    part = Part(runner, mode="dense").create()
    if records:
        part.append(records)
    return Group(part, **words)


def test_a_partition_that_is_another_topics_is_refused(runner: Runner) -> None:
    group = Group(Part(runner, mode="dense"))
    for error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        assert group.probe(topic_id=OTHER_ID).error == error
        assert group.acknowledge("m", (0, 1, ACCEPT), topic_id=OTHER_ID) == error
        place = KEYS.partition(group.part.topic, 0, OTHER_ID)
        assert runner.run(place.share_describe(group="g", most=1)).error == error
        assert runner.run(place.share_reset(group="g", offset=1)).error == error
        if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            group.part.create()
    assert group.rows() == []


def test_a_group_without_state_needs_a_start(runner: Runner) -> None:
    group = group_in(runner, start=-1)
    assert group.probe().error == Signal.START_FIRST
    assert group.acknowledge("m", (0, 1, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert group.describe().start == -1
    assert group.probe(start=4).next == 4
    assert group.probe(start=7).next == 4
    assert group.counts() == (4, 4, 0, 0, 0, 0)


def test_acquired_records_are_not_given_to_another_member(runner: Runner) -> None:
    group = group_in(runner)
    assert group.acquire("one", (0, 4)) == [(0, 4, 1)]
    assert group.acquire("two", (0, 9)) == [(5, 9, 1)]
    assert group.acquire("one", (0, 9)) == []
    assert group.counts() == (0, 10, 0, 10, 0, 0)
    assert group.accept("one", 0, 4) == ErrorCode.NONE
    assert group.accept("two", 5, 9) == ErrorCode.NONE
    assert group.counts() == (10, 10, 0, 0, 10, 0)
    assert group.rows() == []


def test_whole_batches_are_acquired_unless_the_limit_is_exact(runner: Runner) -> None:
    group = group_in(runner, 30)
    batches = ((0, 9), (10, 19), (20, 29))
    assert group.acquire("one", *batches, most=12) == [(0, 19, 1)]
    assert group.acquire("two", (20, 29), most=4, exact=1) == [(20, 23, 1)]
    assert group.probe().next == 24


def test_records_beyond_the_locks_of_the_partition_wait(runner: Runner) -> None:
    group = group_in(runner, 30, max_locks=10)
    assert group.acquire("one", (0, 29), most=100, exact=1) == [(0, 9, 1)]
    reply = group.probe()
    assert (reply.next, reply.room) == (10, 0)
    assert group.acquire("two", (10, 29)) == []
    group.accept("one", 2, 5)
    assert group.probe().room == 4
    assert group.acquire("two", (10, 29), exact=1) == [(10, 13, 1)]
    group.acknowledge("one", (0, 1, RELEASE))
    assert group.probe().next == 0
    assert group.acquire("two", (0, 29)) == [(0, 1, 2)]


def test_the_start_moves_over_the_finished_prefix_only(runner: Runner) -> None:
    group = group_in(runner)
    group.acquire("m", (0, 9))
    group.accept("m", 3, 5)
    assert group.counts()[0] == 0
    group.accept("m", 0, 2)
    assert group.counts() == (6, 10, 0, 4, 6, 0)


def test_each_offset_of_a_range_has_its_own_type(runner: Runner) -> None:
    group = group_in(runner)
    group.acquire("m", (0, 9))
    types = [(0, 0, ACCEPT), (1, 1, REJECT), (2, 2, GAP), (3, 4, RELEASE), (6, 6, ACCEPT)]
    assert group.acknowledge("m", *types) == ErrorCode.NONE
    assert group.counts() == (3, 10, 2, 4, 2, 2)
    assert group.acquire("n", (0, 9)) == [(3, 4, 2)]


@pytest.mark.parametrize(
    ("ranges", "error"),
    [
        ([(0, 1, ACCEPT), (5, 5, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 1, ACCEPT), (7, 7, RELEASE)], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 4, RELEASE), (8, 9, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(3, 6, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
    ],
)
def test_an_acknowledgement_is_done_whole_or_not_at_all(
    runner: Runner, ranges: list[tuple[int, int, int]], error: ErrorCode
) -> None:
    """Offsets 0-4 are the member's, 5-6 another's, 7 is available, 8-9 have no state."""
    group = group_in(runner)
    group.acquire("m", (0, 4))
    group.acquire("other", (5, 6))
    group.acquire("third", (7, 7))
    group.acknowledge("third", (7, 7, RELEASE))
    before = group.rows(), group.describe()
    assert group.acknowledge("m", *ranges) == error
    assert (group.rows(), group.describe()) == before


def test_what_is_acknowledged_twice_below_the_start_is_no_error(runner: Runner) -> None:
    """The response to the first request was lost."""
    group = group_in(runner)
    group.acquire("m", (0, 9))
    assert group.accept("m", 0, 4) == group.accept("m", 0, 4) == ErrorCode.NONE
    assert group.accept("m", 7, 8) == ErrorCode.NONE
    assert group.accept("m", 7, 8) == ErrorCode.INVALID_RECORD_STATE
    assert group.counts() == (5, 10, 0, 3, 7, 0)


def test_a_lapsed_lock_frees_its_records_and_ends_the_right_to_acknowledge(lua: LuaRunner) -> None:
    group = group_in(lua)
    group.acquire("one", (0, 4))
    lua.advance(1_000)
    group.acquire("two", (5, 9))
    assert group.probe().wait_ms == LOCK_MS - 1_000
    lua.advance(LOCK_MS - 1_001)
    assert group.acquire("three", (0, 9)) == []
    assert group.probe().wait_ms == 1
    lua.advance(1)
    assert group.accept("one", 0, 4) == ErrorCode.INVALID_RECORD_STATE
    assert group.acquire("three", (0, 9)) == [(0, 4, 2)]
    assert group.accept("two", 5, 9) == ErrorCode.NONE


def test_many_lapsed_runs_are_freed_in_several_calls(lua: LuaRunner) -> None:
    group = group_in(lua, 500)
    for offset in range(0, 500, 2):
        group.acquire("m", (offset, offset))
        group.acquire("n", (offset + 1, offset + 1))
    lua.advance(LOCK_MS)
    waits = [group.probe().wait_ms for _ in range(6)]
    assert waits == [0, 0, 0, 0, 0, -1]
    assert group.acquire("m", (0, 499)) == [(0, 499, 2)]


def test_a_renewed_lock_is_kept_longer(lua: LuaRunner) -> None:
    group = group_in(lua)
    group.acquire("m", (0, 9))
    lua.advance(20_000)
    assert group.acknowledge("m", (0, 3, RENEW)) == ErrorCode.NONE
    lua.advance(10_000)
    assert group.acquire("n", (0, 9)) == [(4, 9, 2)]
    lua.advance(19_999)
    assert group.accept("m", 0, 3) == ErrorCode.NONE


def test_a_record_delivered_too_often_is_archived(lua: LuaRunner) -> None:
    group = group_in(lua, 2, limit=3)
    for deliveries in (1, 2):
        assert group.acquire("m", (0, 1)) == [(0, 1, deliveries)]
        assert group.acknowledge("m", (0, 0, RELEASE)) == ErrorCode.NONE
        lua.advance(LOCK_MS)
    assert group.acquire("m", (0, 1)) == [(0, 0, 3)]
    assert group.acknowledge("m", (0, 0, RELEASE)) == ErrorCode.NONE
    assert group.acquire("m", (0, 1)) == [(1, 1, 3)]
    lua.advance(LOCK_MS)
    assert group.acquire("m", (0, 1)) == []
    assert group.counts() == (2, 2, 0, 0, 0, 2)


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [(2, [16, 16]), (3, [16, 16, 1]), (5, [16, 16, 16, 8, 1]), (8, [16] * 4 + [8, 4, 2, 1])],
)
def test_records_delivered_often_are_delivered_alone_and_fewer_at_once(
    runner: Runner, limit: int, sizes: list[int]
) -> None:
    """As in Kafka 4.3: the last delivery is of one record, so that it archives no others."""
    group, got = group_in(runner, 40, limit=limit), []
    for _ in sizes:
        ((first, last, deliveries),) = group.acquire("m", (0, 39), most=16, exact=1)[:1]
        assert (first, deliveries) == (0, len(got) + 1)
        got.append(last + 1)
        assert group.acknowledge("m", (0, last, RELEASE)) == ErrorCode.NONE
    assert got == sizes
    first, last, deliveries = group.acquire("m", (0, 39), most=16, exact=1)[0]
    assert (first, deliveries) == (1, limit) or limit == 2


def test_the_end_of_a_session_releases_records_and_the_delivery_counts(lua: LuaRunner) -> None:
    """As in Kafka 4.3."""
    group = group_in(lua, limit=2)
    group.acquire("m", (0, 4))
    group.acquire("n", (5, 5))
    group.accept("m", 1, 1)
    assert group.release("m") == 4
    assert group.release("m") == 0
    assert group.acquire("n", (0, 9)) == [(0, 0, 2), (2, 4, 2), (6, 9, 1)]
    assert group.release("n") == 9
    assert group.counts() == (5, 10, 5, 0, 1, 4)


def test_many_records_are_released_in_steps_that_any_broker_continues(lua: LuaRunner) -> None:
    group = held(lua, STEP + 5)
    reply = group.release_step("m")
    assert (reply.released, reply.next) == (STEP, 2 * STEP)
    assert group.acquire("n", (0, 4)) == [(0, 0, 2), (2, 2, 2), (4, 4, 2)]
    again = group.release_step("m")
    assert (again.released, again.next) == (5, -1)
    assert group.release_step("m", reply.next).released == 0
    assert group.counts()[2:4] == (STEP + 5 - 3, 3)
    assert group.release("n") == 3


def test_a_member_holds_its_records_until_a_script_frees_them(lua: LuaRunner) -> None:
    group = group_in(lua)
    assert group.hold("m", 0) == []
    group.acquire("m", (0, 3))
    group.acquire("n", (4, 5))
    group.accept("m", 1, 1)
    assert group.hold("m", 0, 1, 2, 3, 4, 9) == [0, 2, 3]
    lua.advance(LOCK_MS)
    assert group.accept("m", 0, 0) == ErrorCode.INVALID_RECORD_STATE
    assert group.acknowledge("m", (0, 0, ACCEPT), fenced=1) == ErrorCode.NONE
    assert group.acknowledge("m", (4, 4, ACCEPT), fenced=1) == ErrorCode.INVALID_RECORD_STATE
    assert group.hold("m", 0, 2, 3, lock_ms=LOCK_MS) == [2, 3]
    assert group.acquire("o", (0, 9), most=2, exact=1) == [(4, 5, 2)]
    assert group.hold("n", 4) == [] and group.hold("m", 2, 3) == [2, 3]
    lua.advance(LOCK_MS)
    group.probe()
    assert group.acknowledge("m", (2, 2, ACCEPT), fenced=1) == ErrorCode.INVALID_RECORD_STATE
    assert group.accept("m", 0, 0) == ErrorCode.NONE
    assert group.acknowledge("m", (0, 0, ACCEPT), fenced=1) == ErrorCode.INVALID_RECORD_STATE


def test_what_a_step_watches_is_written_when_a_member_loses_records(runner: Runner) -> None:
    group = group_in(runner)
    lost = group.part.keys.share_lost

    def is_written() -> bool:
        return bool(runner.command("DEL", lost))

    group.acquire("m", (0, 9))
    group.acknowledge("m", (0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT))
    group.acquire("n", (0, 9))
    assert group.hold("m", 3, lock_ms=LOCK_MS) == [3]
    assert not is_written()
    assert group.hold("m", 3, ends_steps=1) == [3] and is_written()
    assert group.release("n") == 1 and is_written()
    assert group.release("n") == 0 and not is_written()
    group.acquire("n", (1, 1), lock_ms=0)
    group.probe()
    assert is_written()


def test_a_release_frees_many_expired_locks_in_steps(lua: LuaRunner) -> None:
    group = held(lua, STEP + 5)
    lua.advance(LOCK_MS + 1)
    assert [group.release_step("n").next for _ in range(2)] == [0, -1]
    assert group.counts()[2:4] == (STEP + 5, 0)


def test_a_released_record_waits_longer_with_each_delivery(lua: LuaRunner) -> None:
    group = group_in(lua, 1, limit=10)
    waits = []
    for _ in range(5):
        assert group.acquire("m", (0, 0)) != []
        assert group.acknowledge("m", (0, 0, RELEASE), backoff_ms=100, max_backoff_ms=500) == 0
        assert group.counts()[2:4] == (1, 0)
        reply = group.probe()
        assert (group.acquire("n", (0, 0)), reply.next) == ([], 1)
        assert group.accept("m", 0, 0) == ErrorCode.INVALID_RECORD_STATE
        waits.append(reply.wait_ms)
        lua.advance(reply.wait_ms)
    assert waits == [100, 200, 400, 500, 500]


def test_offsets_without_a_record_are_never_given(runner: Runner) -> None:
    """Compaction, markers and aborted transactions leave them; time mode leaves most."""
    group = group_in(runner, 20)
    assert group.acquire("m", (0, 2), (5, 6), read=(0, 9)) == [(0, 2, 1), (5, 6, 1)]
    assert group.probe().next == 10
    group.acknowledge("m", (0, 2, RELEASE), (5, 6, RELEASE))
    assert group.acquire("m", (1, 2), read=(0, 6)) == [(1, 2, 2)]
    assert group.accept("m", 1, 2) == ErrorCode.NONE
    assert group.counts() == (10, 10, 0, 0, 2, 0)
    assert group.acquire("m", read=(10, 14)) == []
    assert group.counts()[:2] == (15, 15)


def test_a_range_read_above_the_end_leaves_nothing_out(runner: Runner) -> None:
    """A broker may use an end that an administrator has changed since."""
    group = group_in(runner, 20)
    assert group.acquire("m", (10, 19)) == []
    assert group.probe().next == 0


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_records_above_the_end_of_the_log_are_not_acquired(runner: Runner, mode: str) -> None:
    """A broker may have read them from a server that is no longer the master."""
    part = Part(runner, mode=mode).create()
    base = part.append(10).base
    group = Group(part, start=base)
    assert group.acquire("m", (base, base + 10)) == []
    assert group.counts()[2:4] == (0, 0)
    part.native()
    last = part.offsets()[-1]
    assert group.acquire("m", (base, base + 9), (last, last)) == []
    assert part.bounds().next == last + 1  # it has its offset from here on
    taken = group.acquire("m", (base, base + 9), (last, last))
    assert sum(to - at + 1 for at, to, _ in taken) == 11
    part.truncate(-1)
    assert group.acquire("m", (last + 1, last + 1)) == []


def test_records_deleted_from_the_log_leave_the_state(runner: Runner) -> None:
    group = group_in(runner, 20)
    group.acquire("m", (0, 9))
    group.acquire("n", (10, 14))
    group.acknowledge("n", (10, 14, RELEASE))
    group.part.truncate(12)
    assert group.describe().start == 12
    assert group.probe().next == 12
    assert group.counts() == (12, 15, 3, 0, 0, 0)
    assert group.accept("m", 0, 9) == ErrorCode.NONE
    group.part.truncate(18)
    assert group.acquire("m", (18, 19)) == [(18, 19, 1)]
    assert group.counts() == (18, 20, 0, 2, 0, 0)


def test_a_reset_moves_the_group_and_forgets_its_records(runner: Runner) -> None:
    group = group_in(runner)
    other = Group(group.part, "g2")
    group.acquire("m", (0, 9))
    other.acquire("m", (0, 4))
    call = KEYS.partition("t", 0, ID).share_reset(group="g", offset=3)
    assert runner.run(call).error == 0
    described = group.describe()
    assert (described.start, described.epoch, described.acquired) == (3, 1, 0)
    assert group.accept("m", 0, 9) == ErrorCode.INVALID_RECORD_STATE
    assert group.acquire("m", (3, 9)) == [(3, 9, 1)]
    assert other.counts() == (0, 5, 0, 5, 0, 0)


def test_the_state_of_a_group_is_deleted_alone(runner: Runner) -> None:
    group = group_in(runner)
    other = Group(group.part, "g:2")
    for each in (group, other):
        each.acquire("m", (0, 9))
    call = KEYS.partition("t", 0, ID).share_delete(group="g")
    assert [runner.run(call).deleted for _ in range(2)] == [1, 0]
    assert group.describe().start == -1
    assert other.counts() == (0, 10, 0, 10, 0, 0)
    assert len(other.rows()) == 2


def test_no_state_is_left_of_a_deleted_topic(runner: Runner) -> None:
    group = group_in(runner)
    group.acquire("m", (0, 9))
    runner.run(KEYS.partition("t", 0, ID).delete())
    assert runner.command("EXISTS", group.part.keys.share, group.part.keys.share_runs) == 0


def test_acquired_runs_are_described_with_member_and_deadline(lua: LuaRunner) -> None:
    group = group_in(lua)
    group.acquire("m:1", (0, 4))
    group.acquire("n", (5, 9))
    until = b"%d" % (lua.now_ms() + LOCK_MS)
    first, second = [b"0", b"4", b"1", until, b"m:1"], [b"5", b"9", b"1", until, b"n"]
    assert group.describe().runs == first + second
    assert group.describe(most=1).runs == first
    assert group.describe(most=0).runs == []


def test_the_cost_is_that_of_the_changed_runs(
    lua: LuaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 runs of one record: a call on one of them reads few rows."""
    group = group_in(lua, 2_000)
    for offset in range(0, 2_000, 2):
        group.acquire("m", (offset, offset))
        group.acquire("n", (offset + 1, offset + 1))
    read: list[int] = []
    kept = lua.reply_to

    def count(words: Iterable[bytes]) -> Any:
        command = list(words)
        reply = kept(command)
        if command[0] == b"ZRANGE":
            read.append(len(reply))
        return reply

    monkeypatch.setattr(lua, "reply_to", count)
    assert group.accept("n", 1_001, 1_001) == ErrorCode.NONE
    assert group.acknowledge("m", (1_500, 1_500, RELEASE)) == ErrorCode.NONE
    assert group.acquire("n", (1_500, 1_500)) == [(1_500, 1_500, 2)]
    assert 0 < sum(read) < 60


@pytest.mark.parametrize("group_id", ["a", "a:b", "ä{x}", "a;"])
def test_groups_with_similar_names_do_not_share_state(runner: Runner, group_id: str) -> None:
    one = group_in(runner)
    two = Group(one.part, group_id)
    one.name = "a:"
    assert one.acquire("m", (0, 9)) == two.acquire("m", (0, 9)) == [(0, 9, 1)]
    assert one.accept("m", 0, 9) == ErrorCode.NONE
    assert two.counts() == (0, 10, 0, 10, 0, 0)
