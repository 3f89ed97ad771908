"""Check log.apply_retention: it removes records past retention.ms or retention.bytes, no others."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from korvet.base.errors import ErrorCode
from korvet.testing import LuaRunner
from korvet.wire import control_records
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.support.redis_servers import TestServer
from tests.support.store_runners import Runner, StoreRunner

STEP = 65_536
HOUR = 3_600_000


def test_what_is_refused_changes_nothing(runner: Runner) -> None:
    part = Part(runner)
    assert part.retain(0).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    part.create()
    part.append()
    assert part.retain(0, topic_id=OTHER_ID).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert len(part.offsets()) == 1


def test_nothing_goes_from_an_empty_log_or_without_limits(runner: Runner) -> None:
    part = Part(runner).create()
    assert part.retain(1, 1).removed == 0
    part.append()
    assert part.retain().removed == 0
    assert part.bounds().start == 0


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("mode", ["time", "dense"])
def test_everything_goes_when_the_newest_record_is_too_old(
    lua: LuaRunner, form: str, mode: str
) -> None:
    part = Part(lua, form, mode).create()
    for _ in range(3):
        part.append(4)
    end = part.bounds().next
    lua.advance(HOUR)
    assert part.retain(HOUR).removed == 0, "exactly at the limit"
    lua.advance(1)
    reply = part.retain(HOUR)
    assert (reply.start, reply.removed) == (end, 12 if form == "record" else 3)
    assert part.bounds().start == part.bounds().first == end
    assert part.append().base >= end


def test_a_batch_younger_than_its_neighbours_keeps_what_is_behind_it(lua: LuaRunner) -> None:
    part = Part(lua, mode="dense").create()
    now = lua.now_ms()
    for moment in (now - 2 * HOUR, now - 2 * HOUR, now, now - 2 * HOUR):
        part.append(size=STEP, max_timestamp=moment)
    assert part.retain(HOUR).start == 2
    assert part.offsets() == [2, 3]


def test_so_many_bytes_stay_at_least(lua: LuaRunner) -> None:
    part = Part(lua, mode="dense").create()
    for _ in range(10):
        part.append(size=STEP)
    assert part.retain(size=4 * STEP).start == 6
    assert part.bounds().bytes == 4 * STEP
    assert part.retain(size=4 * STEP).removed == 0


def test_one_call_removes_at_most_so_many_steps(lua: LuaRunner) -> None:
    part = Part(lua, mode="dense").create()
    for _ in range(10):
        part.append(size=STEP)
    lua.advance(HOUR)
    seen = []
    while True:
        reply = part.retain(1, steps=3)
        seen.append(reply.start)
        if not reply.more:
            break
    assert seen == [3, 6, 9, 10]
    assert part.offsets() == []


def test_native_entries_of_a_time_topic_go_by_the_time_in_their_ids(lua: LuaRunner) -> None:
    part = Part(lua).create()
    begin = lua.now_ms()
    for minute in range(10):
        lua.command("XADD", part.keys.stream, f"{begin + minute * 60_000}-0", "value", "v")
    lua.advance(9 * 60_000)
    reply = part.retain(5 * 60_000)
    assert reply.removed == 4
    assert part.offsets()[0] == (begin + 4 * 60_000) << 10
    assert reply.start == ((begin + 3 * 60_000) << 10) + 1, "right after the last removed entry"
    lua.advance(HOUR)
    assert part.retain(5 * 60_000).removed == 6


def test_native_entries_do_not_keep_what_is_older(lua: LuaRunner) -> None:
    part = Part(lua).create()
    part.append(5)
    lua.advance(HOUR)
    lua.command("XADD", part.keys.stream, f"{lua.now_ms()}-0", "value", "v")
    assert part.retain(HOUR // 2).removed == 5
    assert len(part.offsets()) == 1


def test_native_entries_of_a_dense_topic_count_from_when_they_are_met(lua: LuaRunner) -> None:
    part = Part(lua, mode="dense").create()
    part.append(2)
    lua.advance(HOUR)
    part.native()
    part.native()
    assert part.retain(HOUR // 2).removed == 0
    assert part.bounds().records == 4
    lua.advance(HOUR // 2)
    part.append()
    lua.advance(1)
    assert part.retain(HOUR // 2).removed in (0, 2), "not before retention.ms"
    lua.advance(HOUR)
    part.retain(HOUR // 2)
    assert part.offsets() == []


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_what_is_too_old_goes_from_a_full_redis(redis_server: TestServer, mode: str) -> None:
    with redis_server.client() as client:
        client.flushall()
        part = Part(StoreRunner(client), mode=mode).create()
        for _ in range(3):
            part.append(size=STEP, max_timestamp=1)
        if mode == "dense":
            part.native()
        client.config_set("maxmemory", 1)
        try:
            assert part.retain(HOUR).removed == 3
        finally:
            client.config_set("maxmemory", 0)


@pytest.mark.parametrize("form", ["record", "batch"])
def test_a_time_in_the_future_is_forgotten_with_the_log_that_held_it(
    lua: LuaRunner, form: str
) -> None:
    """Retention waited for that time even after the record was deleted."""
    part = Part(lua, form, "dense").create()
    part.append(size=STEP, max_timestamp=lua.now_ms() + 10_000 * HOUR)
    lua.advance(2 * HOUR)
    assert part.retain(HOUR).removed == 0
    part.truncate(-1)
    assert part.bounds().newest == -1
    for _ in range(2):
        part.append(size=STEP)
    lua.advance(2 * HOUR)
    assert part.retain(HOUR).removed == 2


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("mode", ["time", "dense"])
def test_records_without_a_timestamp_are_as_old_as_their_append(
    lua: LuaRunner, form: str, mode: str
) -> None:
    """Producers before Kafka 0.10 send none; the first retention removed their records."""
    part = Part(lua, form, mode).create()
    first = part.append(2, size=STEP, max_timestamp=-1).base
    assert part.retain(HOUR).removed == 0
    lua.advance(HOUR)
    second = part.append(2, size=STEP, max_timestamp=-1).base
    lua.advance(1)
    reply = part.retain(HOUR)
    assert reply.removed, "only the first is older than an hour"
    assert reply.start == (first + 2 if mode == "time" else second)


@pytest.mark.parametrize("form", ["record", "batch"])
def test_a_reader_of_all_removed_records_is_still_in_range(lua: LuaRunner, form: str) -> None:
    part = Part(lua, form).create()
    base = part.append(3, size=STEP).base
    lua.advance(HOUR)
    young = part.append(3, size=STEP).base
    assert young > base + 3, "offsets follow the clock"
    reply = part.retain(HOUR // 2)
    bounds = part.bounds()
    assert (reply.start, bounds.start, bounds.first) == (base + 3, base + 3, young)
    assert bounds.records == 3 and bounds.bytes == STEP
    assert part.retain(HOUR // 2).start == base + 3, "the start stays"
    lua.advance(HOUR)
    assert part.retain(HOUR // 2).start == young + 3


def test_a_start_moves_no_further_than_what_went(lua: LuaRunner) -> None:
    part = Part(lua).create()
    base = part.append(3, size=STEP).base
    lua.advance(HOUR)
    lua.command("XADD", part.keys.stream, f"{lua.now_ms()}-0", "value", "v")
    assert part.retain(HOUR // 2).start == base + 3
    lua.advance(HOUR // 4)
    reply = part.retain(HOUR // 2)
    assert (reply.removed, reply.start) == (0, base + 3)
    lua.advance(HOUR)
    part.retain(HOUR)
    assert part.offsets() == []


def test_records_without_a_timestamp_keep_old_ones_before_them(lua: LuaRunner) -> None:
    part = Part(lua, mode="dense").create()
    part.append(size=10, max_timestamp=lua.now_ms() - 2 * HOUR)
    part.append(size=10, max_timestamp=-1)
    assert part.retain(HOUR).removed == 0
    lua.advance(HOUR + 1)
    assert part.retain(HOUR).removed == 2


def test_a_time_of_append_is_no_records_timestamp(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    part.append(max_timestamp=-1)
    assert part.bounds().newest == -1
    part.append(max_timestamp=5)
    assert part.bounds().newest == 5


@pytest.mark.parametrize(
    ("form", "mode"), [("record", "time"), ("record", "dense"), ("batch", "dense")]
)
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(
    ages=st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 3 * HOUR)), st.integers(1, 3)), max_size=30
    ),
    retention=st.integers(0, 3 * HOUR),
    steps=st.integers(1, 5),
)
def test_what_is_gone_was_too_old_and_what_is_too_old_goes_within_a_step(
    form: str, mode: str, ages: list[tuple[int | None, int]], retention: int, steps: int
) -> None:
    """Invariant 6: records go no earlier than retention.ms, and at most an index step later."""
    runner = LuaRunner()
    part = Part(runner, form, mode).create()
    moments: list[int] = []
    spans = []
    for age, count in ages:
        moment = runner.now_ms() - (age or 0)
        reported = -1 if age is None else moment
        base = part.append(count, size=STEP // 2, max_timestamp=reported).base
        spans.append((base + count - 1, moment))
        moments.append(moment)
    while part.retain(retention, steps=steps).more:
        pass
    cutoff = runner.now_ms() - retention
    start = part.bounds().start
    gone = [moment for last, moment in spans if last < start]
    assert all(moment < cutoff for moment in gone)
    due = next((n for n, moment in enumerate(moments) if moment >= cutoff), len(moments))
    assert len(gone) >= due - 2, "two appends fill a step of the index"
    if due == len(moments):
        assert part.offsets() == []


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_native_entries_among_records_of_long_ago_stay_as_long_as_they_should(
    lua: LuaRunner, mode: str
) -> None:
    part = Part(lua, mode=mode).create()
    for _ in range(4):
        part.append(size=STEP, max_timestamp=1)
        lua.advance(1)
        lua.command(
            "XADD", part.keys.stream, f"{lua.now_ms()}-0" if mode == "time" else "*", "a", "b"
        )
        lua.advance(1)
    part.append(size=STEP, max_timestamp=1)
    older = 1 if mode == "dense" else 0  # the first record: ids of time mode are of the append
    assert part.retain(HOUR).removed == older
    lua.advance(HOUR - 10)
    assert part.retain(HOUR).removed == 0
    lua.advance(20)
    assert part.retain(HOUR).removed == 9 - older


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_native_entries_before_a_marker_stay_as_long_as_they_should(
    lua: LuaRunner, mode: str
) -> None:
    part = Part(lua, mode=mode).create()
    producer = {"producer_id": 1, "producer_epoch": 0, "transaction": 1}
    part.append(size=STEP, max_timestamp=1, base_sequence=0, **producer)
    lua.advance(1)
    now = lua.now_ms()
    lua.command("XADD", part.keys.stream, f"{now}-9" if mode == "time" else "*", "a", "b")
    fields = control_records.fields_of(now, 1, 0, True)
    lua.run(
        KEYS.partition("t", 0, ID).write_txn_marker(committed=1, size=10, fields=fields, **producer)
    )
    assert len(part.ids()) == 3
    kept = part.ids()[1:]
    lua.advance(HOUR)
    part.retain(HOUR)
    assert part.ids()[-2:] == kept
    lua.advance(1)
    part.retain(HOUR)
    assert part.ids() == []


@pytest.mark.parametrize("mode", ["time", "dense"])
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(
    events=st.lists(
        st.one_of(
            st.integers(0, 3 * HOUR),  # the age of an appended record
            st.none(),  # a foreign entry
            st.integers(-2 * HOUR, -1),  # the time that passes, negative
            st.sampled_from(["retain", "trim"]),
        ),
        max_size=40,
    ),
    retention=st.integers(0, 3 * HOUR),
)
def test_no_native_entry_goes_early_whatever_times_its_neighbours_have(
    mode: str, events: list[int | str | None], retention: int
) -> None:
    runner = LuaRunner()
    part = Part(runner, mode=mode).create()
    added: dict[str, int] = {}  # ids of foreign entries, and when each was added
    sequence = 0
    for event in [*events, "retain"]:
        if event is None:
            sequence += 1
            at = f"{runner.now_ms()}-{900 + sequence % 100}" if mode == "time" else "*"
            try:
                raw: Any = runner.command("XADD", part.keys.stream, at, "value", "native")
            except ResponseError:  # a record of that millisecond has a higher id
                continue
            added[raw.decode()] = runner.now_ms()
        elif event == "trim":
            part.truncate(part.offsets()[len(part.offsets()) // 2] if part.offsets() else 0)
            there = set(part.ids())
            added = {one: moment for one, moment in added.items() if one in there}
        elif event == "retain":
            while part.retain(retention, steps=3).more:
                pass
            there = set(part.ids())
            gone = [moment for one, moment in added.items() if one not in there]
            assert all(moment < runner.now_ms() - retention for moment in gone)
            added = {one: moment for one, moment in added.items() if one in there}
        elif isinstance(event, int) and event < 0:
            runner.advance(-event)
        elif isinstance(event, int):
            part.append(size=STEP // 2, max_timestamp=runner.now_ms() - event)
    part.retain(retention)  # indexes the foreign entries since the last call
    runner.advance(retention + 1)
    while part.retain(retention).more:
        pass
    assert part.offsets() == []


def test_records_of_long_ago_go_at_once_where_markers_are_all_else_that_there_is(
    runner: Runner,
) -> None:
    """Removed entries were not foreign either: Redis 7 and later count the added ones."""
    part = Part(runner, mode="time").create()
    for number in range(1, 7):
        producer = {"producer_id": 1, "producer_epoch": 0, "transaction": number}
        part.append(size=STEP, max_timestamp=1, base_sequence=number - 1, **producer)
        fields = control_records.fields_of(runner.now_ms(), 1, 0, True)
        marker = KEYS.partition("t", 0, ID).write_txn_marker(
            fields, committed=1, size=10, **producer
        )
        runner.run(marker)
        if number == 3:
            assert part.retain(size=STEP).removed
    assert part.state()["start"] != "0"
    part.retain(HOUR)
    info: Any = runner.command("XINFO", "STREAM", part.keys.stream)
    assert part.ids() == [] or b"entries-added" not in info
