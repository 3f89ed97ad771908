"""Check log.adopt: foreign entries count, and leave, as appended records do."""

import random
from itertools import pairwise
from typing import Any

import pytest

from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.selection import seeds
from tests.support.store_runners import Runner

VALUE = b"v" * 1000
SIZE = len(b"value") + len(VALUE)
MODES = pytest.mark.parametrize("mode", ["time", "dense"])


def numbers(part: Part) -> tuple[int, int]:
    """Return the bytes and records that the log's counters have."""
    state = part.state()
    return int(state["bytes"]) - int(state["start_bytes"]), int(state["records"]) - int(
        state["start_records"]
    )


def rows(part: Part) -> list[tuple[int, ...]]:
    """Return the rows of the sparse index: offset, newest, bytes, records."""
    found: Any = part.runner.command("ZRANGE", part.keys.index, 0, -1)
    return [tuple(map(int, row.split(b":"))) for row in found]


@pytest.mark.parametrize(("topic_id", "error"), [(OTHER_ID, 100), (ID, 3)])
def test_another_topics_log_is_refused(runner: Runner, topic_id: str, error: int) -> None:
    part = Part(runner)
    if error == 100:
        part.create()
    assert runner.run(KEYS.partition("t", 0, topic_id).adopt()).error == error


@MODES
def test_foreign_entries_count_once(runner: Runner, mode: str) -> None:
    part = Part(runner, mode=mode).create()
    for _ in range(200):
        part.native(b"value", VALUE)
    for _ in range(3):
        part.adopt()
    assert numbers(part) == (200 * SIZE, 200)
    assert part.bounds().bytes == 200 * SIZE
    part.append(5)
    part.adopt()
    assert numbers(part) == (200 * SIZE + 50, 205)
    part.native(b"value", VALUE)
    part.adopt()
    assert numbers(part)[1] == 206


@MODES
def test_retention_bytes_removes_foreign_entries(runner: Runner, mode: str) -> None:
    part = Part(runner, mode=mode).create()
    for _ in range(300):
        part.native(b"value", VALUE)
    part.retain(size=100_000)
    left = len(part.ids())
    assert 100_000 <= left * SIZE < 100_000 + 65536 + SIZE
    assert numbers(part) == (left * SIZE, left)


@MODES
@pytest.mark.parametrize("seed", seeds(range(3), quick=1))
def test_counters_and_index_are_right_whichever_program_adds_and_removes(
    mode: str, seed: int
) -> None:
    runner, dice = LuaRunner(), random.Random(seed)
    part = Part(runner, mode=mode).create()
    for _ in range(150):
        kind = dice.randrange(8)
        if kind < 3:
            for _ in range(dice.randrange(1, 40)):
                part.native(b"value", b"v" * dice.randrange(1, 3000))
        elif kind < 5:
            count = dice.randrange(1, 5)
            part.append(count, size=count * dice.randrange(1, 20_000))
        elif kind == 5:
            part.adopt()
        elif kind == 6:
            part.retain(size=dice.randrange(200_000, 400_000))
        else:
            runner.advance(dice.randrange(1000))
        ids = part.ids()
        if ids and dice.randrange(5) == 0:
            runner.command("XDEL", part.keys.stream, dice.choice(ids))
        if dice.randrange(40) == 0:
            runner.command("XTRIM", part.keys.stream, "MAXLEN", len(ids) // 2)
        if dice.randrange(100) == 0:
            runner.command("DEL", part.keys.stream)
        assert min(numbers(part)) >= 0
    part.adopt()
    found = rows(part)
    assert all(a <= b for one, two in pairwise(found) for a, b in zip(one, two, strict=True))
    state = part.state()
    assert not found or found[-1][2] <= int(state["bytes"])
    assert part.adopt() == 1
    assert part.state() == state


@MODES
def test_what_another_program_trims_leaves_the_counters(runner: Runner, mode: str) -> None:
    part = Part(runner, mode=mode).create()
    for _ in range(300):
        part.native(b"value", VALUE)
    part.adopt()
    runner.command("XTRIM", part.keys.stream, "MAXLEN", 10)
    part.adopt()
    assert 10 * SIZE <= numbers(part)[0] < 10 * SIZE + 65536 + SIZE
    runner.command("DEL", part.keys.stream)
    part.adopt()
    assert numbers(part) == (0, 0)
    part.native(b"value", VALUE)
    part.append()
    part.adopt()
    assert numbers(part)[1] == 1 + (mode == "time")


@MODES
def test_copied_records_that_another_program_trims_are_read_from_segments(
    runner: Runner, mode: str
) -> None:
    part = Part(runner, mode=mode).create()
    for _ in range(300):
        part.native(b"value", VALUE)
    part.adopt()
    offsets = part.offsets()
    runner.command("HSET", part.keys.log, "tiered", offsets[100] + 1)
    runner.command("XTRIM", part.keys.stream, "MAXLEN", 250)
    part.adopt()
    assert int(part.state()["local_start"]) == offsets[50]
    runner.command("XTRIM", part.keys.stream, "MAXLEN", 100)
    part.adopt()
    assert int(part.state()["local_start"]) == offsets[100] + 1


@MODES
@pytest.mark.parametrize(
    ("count", "fields"),
    [(1600, [b"value", b"v"]), (1500, [b"value", b"v" * 6000]), (700, [b"name"] * 100)],
)
def test_one_call_reads_a_bounded_part(mode: str, count: int, fields: list[bytes]) -> None:
    lua = LuaRunner()
    part = Part(lua, mode=mode).create()
    for _ in range(count):
        part.native(*fields)
    assert part.adopt() == 2
    assert numbers(part)[1] == count


@MODES
def test_appends_between_two_calls_keep_the_index_in_order(mode: str) -> None:
    lua = LuaRunner()
    part = Part(lua, mode=mode).create()
    for _ in range(3100):
        part.native(b"value", b"v" * 50)
    more = 1
    while more:
        part.append(size=70_000)
        more = lua.run(KEYS.partition("t", 0, ID).adopt()).more
        found = rows(part)
        assert found == sorted(found)
    part.adopt()
    assert numbers(part)[1] == len(part.ids())
    for _ in range(2):
        part.append(size=70_000)
    assert rows(part)[-1][0] == part.offsets()[-1]


def test_entries_that_hold_no_batch_count_their_bytes(runner: Runner) -> None:
    part = Part(runner, "batch", "dense").create()
    part.append(3)
    for _ in range(100):
        part.native(b"value", VALUE)
    part.append(3)
    part.adopt()
    bytes_, records = numbers(part)
    assert bytes_ >= 100 * SIZE and records == 6


@pytest.mark.parametrize(
    ("form", "mode"), [("batch", "time"), ("batch", "dense"), ("bytes", "bytes")]
)
@pytest.mark.parametrize("appends", [0, 1])
def test_retention_removes_entries_that_hold_no_batch(
    runner: Runner, form: str, mode: str, appends: int
) -> None:
    part = Part(runner, form, mode).create()
    for _ in range(300):
        part.native(b"value", VALUE)
    for _ in range(appends):
        part.append(1)
    part.retain(size=100_000)
    left = len(part.ids())
    assert 100_000 <= numbers(part)[0] < 100_000 + 65536 + SIZE
    assert 0 <= numbers(part)[0] - (left - appends) * SIZE < 100 * appends + 1
    state = part.state()
    assert int(state["start"]) <= int(state["next"])
    part.append(1)
    assert len(part.ids()) == left + 1


@pytest.mark.parametrize("gone", [False, True])
def test_records_appended_before_foreign_entries_keep_their_times(
    runner: Runner, gone: bool
) -> None:
    part = Part(runner, mode="dense").create()
    now = runner.now_ms()
    part.append(2, max_timestamp=now - 9_000_000)
    part.adopt()
    for age in (8_000_000, 7_000_000):
        part.append(2000, size=70_000, max_timestamp=now - age)
    part.native()
    if gone:
        runner.command("XDEL", part.keys.stream, part.ids()[-1])
    part.append(2)
    part.adopt()
    assert int(part.state()["next"]) == 4005
    assert [row[1] for row in rows(part)] == [-1, now - 8_000_000, now - 7_000_000]


def test_foreign_entries_after_a_far_id_stay_until_their_time() -> None:
    lua = LuaRunner()
    part = Part(lua, mode="dense").create()
    lua.command("XADD", part.keys.stream, f"{2**63}-1", "value", "no offset")
    part.append(max_timestamp=1)
    part.adopt()
    lua.advance(7_200_000)
    part.native()
    part.append(max_timestamp=1)
    part.retain(3_600_000)
    assert len(part.ids()) == 4
    lua.advance(3_600_001)
    part.retain(3_600_000)
    assert part.ids() == []
