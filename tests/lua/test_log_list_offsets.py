"""Check log.list_offsets and log.find_timestamp: first, last, and the offset of a timestamp."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.base.errors import ErrorCode
from korvet.scripts.calls.partition import FindTimestampReply
from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.lua.transactions import Logs
from tests.support.store_runners import Runner


def seek(part: Part, timestamp: int, topic_id: str = ID) -> FindTimestampReply:
    return part.runner.run(KEYS.partition("t", 0, topic_id).find_timestamp(timestamp=timestamp))


def test_what_is_not_there_or_another_topic_is_refused(runner: Runner) -> None:
    part = Part(runner)
    assert part.bounds().error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert seek(part, 1).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    part.create()
    assert part.bounds(OTHER_ID).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert seek(part, 1, OTHER_ID).error == ErrorCode.UNKNOWN_TOPIC_ID


def test_whichever_topic_is_there_is_taken_without_an_id(runner: Runner) -> None:
    assert Part(runner).create().bounds("").error == ErrorCode.NONE


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_an_empty_log_begins_and_ends_at_0(runner: Runner, mode: str) -> None:
    bounds = Part(runner, mode=mode).create().bounds()
    assert (bounds.start, bounds.first, bounds.next) == (0, 0, 0)
    assert (bounds.epoch, bounds.bytes, bounds.records, bounds.newest) == (0, 0, 0, -1)


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("mode", ["time", "dense"])
def test_the_coming_offset_is_above_all_that_may_have_been_lost(
    runner: Runner, form: str, mode: str
) -> None:
    part = Part(runner, form, mode).create()
    part.append(5)
    bounds = part.bounds()
    assert bounds.coming == bounds.next or (mode == "time" and bounds.coming > bounds.next)
    assert part.append(1).base >= bounds.coming


@pytest.mark.parametrize("count", ["zz", "", "-3", "nan", "inf", "1e400", "7"])
def test_what_a_stray_entry_says_of_its_size_does_not_stop_bounds(
    runner: Runner, count: str
) -> None:
    part = Part(runner, "batch", "dense").create()
    runner.command("XADD", part.keys.stream, f"{2**63 - 1}-4", "batch", "junk", "count", count)
    bounds = part.bounds()
    assert bounds.error == ErrorCode.NONE
    assert 0 == bounds.start <= bounds.first <= 4


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_the_first_offset_of_a_batch_is_counted_back_from_its_last(
    runner: Runner, mode: str
) -> None:
    part = Part(runner, "batch", mode).create()
    base = part.append(5).base
    assert (part.bounds().first, part.bounds().next) == (base, base + 5)


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_native_entries_lie_within_the_bounds(runner: Runner, mode: str) -> None:
    part = Part(runner, mode=mode).create()
    part.native()
    assert part.bounds().first == part.offsets()[0]
    part.append()
    part.native()
    assert part.bounds().next == part.offsets()[-1] + 1


def test_a_native_trim_moves_the_first_offset_and_not_the_start(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    part.append(10)
    runner.command("XTRIM", part.keys.stream, "MAXLEN", 4)
    bounds = part.bounds()
    assert (bounds.start, bounds.first, bounds.next) == (0, 6, 10)


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_native_entries_that_came_and_went_still_took_their_offsets(
    runner: Runner, mode: str
) -> None:
    part = Part(runner, mode=mode).create()
    part.append()
    part.native()
    end = part.bounds().next
    runner.command("XTRIM", part.keys.stream, "MAXLEN", 0)
    bounds = part.bounds()
    assert (bounds.first, bounds.next) == (end, end)
    assert part.append().base >= end


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_foreign_entries_and_trims_are_counted_too(runner: Runner, mode: str) -> None:
    part = Part(runner, mode=mode).create()
    part.append(10)
    part.native()
    part.append()
    part.native()
    assert part.bounds().records == 13
    runner.command("XTRIM", part.keys.stream, "MAXLEN", 4)
    assert part.bounds().records == 4
    part.truncate(part.offsets()[-2])
    assert part.bounds().records == 2


def test_markers_of_transactions_count_as_no_records(runner: Runner) -> None:
    logs = Logs(runner, 1, "dense").create()
    for number in (1, 2):
        assert not logs.append(0, b"v", (7, 0, number - 1), number).error
        logs.mark(0, 7, 0, number, True)
    part = Part(runner)
    assert (part.bounds().next, part.bounds().records) == (4, 2)
    for _ in range(3):
        part.native()
    assert part.bounds().records == 5


def test_an_id_beyond_the_offsets_of_its_millisecond_moves_the_end(lua: LuaRunner) -> None:
    part = Part(lua, bits=8).create()
    ms = lua.now_ms()
    lua.command("XADD", part.keys.stream, f"{ms}-5000", "value", "v")
    assert part.bounds().next == (ms << 8) + 1
    assert part.append().base == (ms + 1) << 8


def test_the_newest_moment_is_the_newest_that_was_ever_appended(runner: Runner) -> None:
    part = Part(runner).create()
    for moment in (50, 90, 10):
        part.append(max_timestamp=moment)
    assert part.bounds().newest == 90
    assert seek(part, -3).timestamp == 90


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    moments=st.lists(st.integers(0, 1000), min_size=1, max_size=40),
    asked=st.integers(0, 1100),
    trimmed=st.integers(0, 40),
)
def test_everything_before_the_place_a_moment_is_sought_from_is_older(
    moments: list[int], asked: int, trimmed: int
) -> None:
    part = Part(LuaRunner(), mode="dense").create()
    for moment in moments:
        part.append(size=30_000, max_timestamp=moment)
    part.truncate(min(trimmed, len(moments)))
    place = seek(part, asked).offset
    assert place <= len(moments)
    live = range(min(trimmed, len(moments)), len(moments))
    right = next((n for n in live if moments[n] >= asked), None)
    assert right is None or place <= right
    steps = len(part.runner.command("ZRANGE", part.keys.index, 0, -1))  # type: ignore[arg-type]
    if right is not None and steps:
        assert right - place <= len(moments)
        assert all(moments[n] < asked for n in range(place) if n in live)


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_a_native_entry_is_found_by_its_moment_before_and_after_it_is_counted(
    runner: Runner, mode: str
) -> None:
    part = Part(runner, mode=mode).create()
    for _ in range(3):
        part.append(size=70_000, max_timestamp=1000)
    part.native()
    native = part.offsets()[-1]
    for _ in range(3):
        part.append(size=70_000, max_timestamp=1000)
    assert seek(part, 1001).offset <= native
    part.adopt()
    assert seek(part, 1001).offset <= native


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_markers_of_transactions_are_not_taken_for_native_entries(
    runner: Runner, mode: str
) -> None:
    part = Part(runner, mode=mode).create()
    for n in range(10):
        part.append(
            size=70_000,
            max_timestamp=1000 + n,
            producer_id=7,
            producer_epoch=0,
            base_sequence=n,
            transaction=n + 1,
        )
        call = KEYS.partition("t", 0, ID).write_txn_marker(
            producer_id=7,
            producer_epoch=0,
            transaction=n + 1,
            committed=1,
            size=50,
            fields=(b"control", b"commit", b"transaction", b"7"),
        )
        assert part.runner.run(call).offset >= 0
    offsets = part.offsets()
    assert seek(part, 1006).offset == offsets[12]
    assert seek(part, 2000).offset == offsets[18]
    if mode == "dense":
        part.truncate(offsets[5])
        assert seek(part, 1006).offset == offsets[12]
    part.native()
    native = part.offsets()[-1]
    part.append(size=70_000, max_timestamp=1)
    part.append(size=70_000, max_timestamp=1)
    assert seek(part, 2000).offset <= native


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "native", "native early"]), st.integers(0, 40)),
        min_size=1,
        max_size=30,
    ),
    mode=st.sampled_from(["time", "dense"]),
    back=st.integers(-20, 500),
)
def test_no_native_entry_before_that_place_is_as_new(
    steps: list[tuple[str, int]], mode: str, back: int
) -> None:
    lua = LuaRunner()
    part = Part(lua, mode=mode).create()
    times: list[float] = []
    for what, pause in steps:
        lua.advance(pause)
        if what == "append":
            part.append(size=50_000, max_timestamp=lua.now_ms() - 100)
            times.append(lua.now_ms() - 100)
        else:
            given = lua.now_ms() - 50 if what == "native early" else None
            part.native(*((b"timestamp", b"%d" % given) if given else ()), b"value", b"v")
            untimed = lua.now_ms() if mode == "time" else float("inf")
            times.append(untimed if given is None else given)
    offsets = part.offsets()
    asked = lua.now_ms() - back
    place = seek(part, asked).offset
    assert all(when < asked for at, when in zip(offsets, times, strict=True) if at < place)
