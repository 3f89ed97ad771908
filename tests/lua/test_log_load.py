"""Check log.load: entries at their own offsets in a log that is being restored."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.remote_log.recovery.loader import LoadedEntry, arguments_after
from korvet.scripts.calls.partition import LoadReply
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.support.store_runners import Runner

STEP = 40_000


def restored(part: Part, start: int = 0) -> Part:
    """Return an empty log of the same shape under another name, as `recovery` makes one."""
    other = Part(part.runner, part.form, part.mode, topic="restored")
    reply = part.runner.run(
        KEYS.partition("restored", 0, ID).restore(
            [], format=part.form, mode=part.mode, bits=part.bits, epoch=3, start=start, next=start
        )
    )
    assert reply.error == 0
    return other


def load(
    part: Part,
    *entries: LoadedEntry,
    aborted: Sequence[tuple[str, int]] = (),
    next: int = -1,
    topic_id: str = ID,
) -> LoadReply:
    rest = arguments_after(entries, aborted)
    return part.runner.run(KEYS.partition(part.topic, 0, topic_id).load(rest, next=next))


def entries_of(part: Part, sizes: list[int], newest: list[int], count: int) -> list[LoadedEntry]:
    rows: Any = part.runner.command("XRANGE", part.keys.stream, "-", "+")
    offsets = part.offsets()
    return [
        (last - count + 1, last, count, size, time, fields)
        for last, (_, fields), size, time in zip(offsets, rows, sizes, newest, strict=True)
    ]


@pytest.mark.parametrize(
    ("form", "mode"),
    [("record", "time"), ("record", "dense"), ("batch", "time"), ("batch", "dense")],
)
def test_a_loaded_log_is_the_one_that_was_appended(runner: Runner, form: str, mode: str) -> None:
    part, dice = Part(runner, form, mode).create(), random.Random(5)
    count = 3 if form == "batch" else 1
    sizes = [dice.randrange(1, STEP) for _ in range(20)]
    newest = [runner.now_ms() + dice.randrange(-500, 500) for _ in sizes]
    for size, time in zip(sizes, newest, strict=True):
        part.append(count, size=size, max_timestamp=time)
    other = restored(part)
    found = entries_of(part, sizes, newest, count)
    for first in range(0, len(found), 7):
        assert load(other, *found[first : first + 7]).error == 0
    assert other.ids() == part.ids()
    before, after = part.state(), other.state()
    assert (after.pop("epoch"), before.pop("epoch")) == ("3", "0")
    assert after == before
    for name in ("index",):
        rows = [
            runner.command("ZRANGE", getattr(each.keys, name), 0, -1, "WITHSCORES")
            for each in (part, other)
        ]
        assert rows[0] == rows[1] != []
    assert other.append(count).base >= part.bounds().next


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_the_log_ends_where_it_is_wanted(runner: Runner, mode: str) -> None:
    part = restored(Part(runner, "batch", mode), start=10)
    fields = [b"batch", b"x", b"count", b"3"]
    assert load(part, (9, 11, 3, 1, 5, fields), aborted=[("7:9:12", 11)]).next == 12
    assert load(part, next=1000).next == 1000
    assert load(part, next=5).next == 1000, "never lower"
    assert part.bounds().start == 10
    rows = runner.command("ZRANGE", part.keys.aborted_txns, 0, -1, "WITHSCORES")
    assert [rows[0], float(rows[1])] == [b"7:9:12", 11.0]
    assert part.append(3).base >= 1000
    if mode == "dense":
        assert part.append(3).base == 1003


def test_what_does_not_fit_the_log_is_refused(runner: Runner) -> None:
    part = restored(Part(runner, "record", "dense"))
    entry = (4, 4, 1, 1, 5, [b"value", b"x"])
    assert load(part, entry).error == 0
    before = part.state(), part.ids()
    assert load(part, entry).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert load(part, (6, 5, 1, 1, 5, [b"a", b"b"])).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert load(part, topic_id=OTHER_ID).error == ErrorCode.UNKNOWN_TOPIC_ID
    absent = Part(runner, topic="absent")
    assert load(absent).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(Exception, match="not those of entries"):
        load(part, (6, 6, 1, 1, 5, [b"odd"]))
    assert (part.state(), part.ids()) == before


def test_entries_without_timestamps_are_as_old_as_the_restore(runner: Runner) -> None:
    part = restored(Part(runner, "record", "dense"))
    load(part, (0, 0, 1, 1, 5, [b"value", b"x"]))
    assert "untimed_append_ms" not in part.state()
    load(part, (1, 1, 0, 1, -1, [b"control", b"abort"]))
    assert "untimed_append_ms" not in part.state() and part.state()["stable"] == "-1"
    load(part, (2, 2, 1, 1, -1, [b"value", b"x"]))
    assert int(part.state()["untimed_append_ms"]) >= runner.now_ms() - 60_000
