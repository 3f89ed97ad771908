"""Check log.claim_copy, add_segment, expire_segments, forget_segments: the segment manifest."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.calls.partition import (
    AddSegmentReply,
    ApplyRetentionReply,
    ClaimCopyReply,
    DropSegmentsReply,
    TrimLocalReply,
)
from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.lua.test_leader_epochs import begin as begin_epoch
from tests.support.store_runners import Runner

STEP = 65_536


def claim(part: Part, holder: str = "a", ttl_ms: int = 1000) -> ClaimCopyReply:
    call = KEYS.partition("t", 0, ID).claim_copy(holder=holder, ttl_ms=ttl_ms)
    return part.runner.run(call)


def add(
    part: Part, fence: int, first: int, last: int, newest: int = 5, topic_id: str = ID
) -> AddSegmentReply:
    call = KEYS.partition("t", 0, topic_id).add_segment(
        fence=fence,
        first=first,
        last=last,
        records=last - first + 1,
        size=100,
        row=f"10:{newest}:id{first}",
    )
    return part.runner.run(call)


def expire(part: Part, ms: int = -1, size: int = -1, most: int = 10) -> DropSegmentsReply:
    call = KEYS.partition("t", 0, ID).expire_segments(
        retention_ms=ms, retention_bytes=size, delay_ms=0, most=most
    )
    return part.runner.run(call)


def trim(part: Part, size: int = 1) -> ApplyRetentionReply:
    call = KEYS.partition("t", 0, ID).apply_retention(
        retention_ms=-1, retention_bytes=size, steps=64, is_local=1
    )
    return part.runner.run(call)


def filled(runner: Runner, count: int = 10) -> Part:
    """Return a partition with `count` records, one for each index step."""
    part = Part(runner, mode="dense").create()
    for _ in range(count):
        part.append(size=STEP)
    return part


def test_one_holder_at_a_time_has_the_lease(lua: LuaRunner) -> None:
    part = filled(lua)
    first = claim(part)
    assert (first.fence, first.first, first.bytes) == (1, 0, 10 * STEP)
    assert claim(part).fence == 1, "renewed"
    assert claim(part, "b").fence == 0
    lua.advance(1001)
    assert claim(part, "b").fence == 2
    assert add(part, 1, 0, 4).added == 0, "an earlier holder"
    assert add(part, 2, 0, 4).added == 1


def test_a_copy_that_began_before_a_leader_epoch_is_refused(runner: Runner) -> None:
    """Check it with a lease that Redis has lost: the copied records may be lost, too."""
    part = filled(runner)
    fence = claim(part).fence
    part.runner.command("HDEL", part.keys.log, "copy_lease")
    begin_epoch(part, 1, known=20)
    assert claim(part).fence > fence
    assert add(part, fence, 0, 19).added == 0
    assert add(part, claim(part).fence, 0, 9).added == 1


def test_a_segment_begins_where_the_last_one_ended(runner: Runner) -> None:
    part = filled(runner)
    fence = claim(part).fence
    assert add(part, fence, 1, 4).added == 0
    assert add(part, fence, 0, 4).tiered == 5
    assert add(part, fence, 0, 4).added == 0, "once"
    assert add(part, fence, 5, 4).added == 0
    assert add(part, fence, 5, 7, topic_id=OTHER_ID).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert add(part, fence, 5, 7).tiered == 8
    rows = part.runner.command("ZRANGE", part.keys.segments, 0, -1)
    assert rows == [b"0:4:0:5:0:100:10:5:id0", b"5:2:5:3:100:100:10:5:id5"]
    assert claim(part).first == 8 and claim(part).bytes == 2 * STEP
    assert claim(part).records == 2
    assert (part.bounds().tiered, part.bounds().start) == (8, 0)


def test_local_retention_never_passes_what_is_copied(runner: Runner) -> None:
    part = filled(runner)
    assert trim(part).removed == 0
    fence = claim(part).fence
    add(part, fence, 0, 4)
    reply = trim(part)
    assert (reply.start, reply.removed) == (0, 5)
    bounds = part.bounds()
    assert (bounds.start, bounds.first, bounds.local_first, bounds.next) == (0, 0, 5, 10)
    assert bounds.bytes == 5 * STEP, "the bytes in Redis"
    add(part, fence, 5, 9)
    assert trim(part, 2 * STEP).removed == 3


def test_the_total_is_counted_by_time_and_size(lua: LuaRunner) -> None:
    part = filled(lua)
    fence = claim(part).fence
    now = lua.now_ms()
    for first, newest in ((0, now - 500), (2, now - 100), (4, now), (6, now)):
        add(part, fence, first, first + 1, newest)
    trim(part)
    assert (expire(part, ms=300).removed, part.bounds().start) == (1, 2)
    assert (expire(part, size=200).removed, part.bounds().start) == (1, 4)
    assert expire(part, size=200).removed == 0
    assert (expire(part, size=0, most=1).removed, part.bounds().start) == (1, 6)
    assert expire(part, size=0).removed == 1
    bounds = part.bounds()
    assert bounds.start == bounds.first == bounds.local_first == 8


def test_the_objects_of_removed_segments_are_named_until_forgotten(runner: Runner) -> None:
    part = filled(runner)
    fence = claim(part).fence
    add(part, fence, 0, 3)
    add(part, fence, 4, 7)
    trim(part)
    assert part.truncate(5).start == 5
    reply = expire(part)
    assert (reply.start, reply.removed) == (5, 1), "a segment that reaches above the start stays"
    assert reply.due == expire(part).due == [b"0:3:0:4:0:100:10:5:id0"]
    assert part.runner.run(KEYS.partition("t", 0).forget_segments(rows=reply.due)).error == 0
    assert expire(part).due == []
    assert part.truncate(-1).start == 10
    assert expire(part).removed == 1
    assert claim(part).first == 10


@pytest.mark.parametrize("step", [False, True])
def test_a_deleted_topic_with_segments_is_noted(runner: Runner, step: bool) -> None:
    part = filled(runner, 1)
    if step:
        call = KEYS.topic_delete_definition(topic="t", expected=b"{}", remote_id=ID)
    else:
        call = KEYS.topic_delete(
            *KEYS.topic_parts("t", 1, ()),
            topic="t",
            expected=b"{}",
            registry_version=b"",
            remote_id=ID,
            partitions=1,
        )
    assert part.runner.run(call).error == 0
    key = KEYS.deleted_topics()
    assert part.runner.command("ZRANGE", key, 0, -1) == [ID.encode()]
    part.runner.run(KEYS.topic_forget_deleted(topic_id=ID))
    assert part.runner.command("ZCARD", key) == 0


def restore(part: Part, start: int, end: int, *rows: tuple[int, int, int, int, str]) -> Any:
    shape: Any = {"format": part.form, "mode": part.mode, "bits": part.bits}
    call = KEYS.partition("t", 0, ID).restore(rows, **shape, epoch=3, start=start, next=end)
    return part.runner.run(call)


def test_a_restored_log_has_its_segments_and_continues_above_the_end(runner: Runner) -> None:
    part = Part(runner, mode="dense")
    rows = [(2, 4, 3, 100, "10:7:a"), (5, 9, 5, 200, "20:6:b")]
    reply = restore(part, 3, 20, *rows)
    assert (reply.error, reply.restored) == (0, 2)
    found = runner.command("ZRANGE", part.keys.segments, 0, -1)
    assert found == [b"2:2:0:3:0:100:10:7:a", b"5:4:3:5:100:200:20:6:b"]
    bounds = part.bounds()
    assert (bounds.start, bounds.first, bounds.next, bounds.tiered) == (3, 3, 20, 10)
    assert (bounds.epoch, bounds.newest, bounds.bytes) == (3, 7, 0)
    assert claim(part).first == 10
    added = runner.command("XADD", part.keys.stream, "*", "value", "foreign")
    assert isinstance(added, bytes) and added.endswith(b"-20")
    assert part.append().base == 21
    assert restore(part, 3, 20, *rows).error == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_restored_log_without_segments_is_not_old(runner: Runner) -> None:
    part = Part(runner, mode="dense")
    assert restore(part, 0, 20).restored == 0
    call = KEYS.partition("t", 0, ID).apply_retention(
        retention_ms=60_000, retention_bytes=-1, steps=64
    )
    assert runner.run(call).start == 0
    assert (part.bounds().next, part.bounds().tiered) == (20, -1)


def trim_local(part: Part, before: int, steps: int = 64) -> TrimLocalReply:
    return part.runner.run(KEYS.partition("t", 0, ID).trim_local(before=before, steps=steps))


def test_a_local_trim_removes_copied_records_only(runner: Runner) -> None:
    part = filled(runner)
    assert trim_local(part, 5).removed == 0, "nothing is copied"
    add(part, claim(part).fence, 0, 7)
    assert (trim_local(part, 3).start, part.bounds().local_first) == (3, 3)
    assert trim_local(part, 2).removed == 0
    found = []
    more = 1
    while more:
        reply = trim_local(part, 100, steps=2)
        more = reply.more
        found.append(reply.start)
    assert found == sorted(set(found)) and found[-1] == 8
    assert (part.bounds().start, part.bounds().local_first) == (0, 8)
    assert trim_local(part, 9).removed == 0


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("mode", ["time", "dense"])
def test_nothing_is_counted_in_redis_or_as_not_copied_once_all_is_in_segments(
    runner: Runner, form: str, mode: str
) -> None:
    part = Part(runner, form=form, mode=mode).create()
    for size in (10, STEP, 7):
        part.append(3, size=size)
    found = claim(part)
    assert (found.bytes, found.records) == (STEP + 17, 9)
    assert add(part, found.fence, found.first, part.bounds().next - 1).added
    found = claim(part)
    assert (found.bytes, found.records) == (0, 0)
    trim_local(part, part.bounds().next)
    assert part.ids() == []
    assert (part.bounds().bytes, part.bounds().records) == (0, 0)
    part.append(2, size=20)
    assert (part.bounds().bytes, part.bounds().records) == (20, 2)
    found = claim(part)
    assert (found.bytes, found.records) == (20, 2)


def drop(part: Part, most: int = 10, topic_id: str = ID) -> DropSegmentsReply:
    call = KEYS.partition("t", 0, topic_id).drop_segments(delay_ms=0, most=most)
    return part.runner.run(call)


def test_a_log_without_its_segments_begins_with_its_records_in_redis(runner: Runner) -> None:
    part = filled(runner)
    fence = claim(part).fence
    for first in (0, 3, 6):
        add(part, fence, first, first + 2)
    trim_local(part, 4)
    assert drop(part, topic_id=OTHER_ID).error == ErrorCode.UNKNOWN_TOPIC_ID
    reply = drop(part, most=2)
    assert (reply.start, reply.removed) == (4, 2)
    bounds = part.bounds()
    assert (bounds.start, bounds.local_first, bounds.next, bounds.tiered) == (4, 4, 10, -1)
    reply = drop(part, most=2)
    assert (reply.start, reply.removed) == (4, 1)
    assert [row.split(b":")[0] for row in reply.due] == [b"0", b"3"]
    assert drop(part).removed == 0
    assert part.bounds().bytes == 6 * STEP


def test_a_copy_that_was_in_progress_is_refused_and_later_ones_begin_anew(runner: Runner) -> None:
    part = filled(runner)
    fence = claim(part).fence
    add(part, fence, 0, 2)
    drop(part)
    assert add(part, fence, 0, 2).added == 0
    again = claim(part, "b")
    assert (again.fence > fence, again.first) == (True, 0)
    assert add(part, fence, 0, 2).added == 0
    assert add(part, again.fence, 0, 2).added == 1


def test_a_log_without_segments_stays_as_it_is(runner: Runner) -> None:
    part = filled(runner)
    assert (drop(part).start, part.bounds().first, part.bounds().next) == (0, 0, 10)
    assert part.runner.command("HEXISTS", part.keys.log, "copy_lease") == 0


def test_a_clock_that_went_back_leaves_no_copy_to_the_dead(lua: LuaRunner) -> None:
    part = filled(lua)
    dead = claim(part, "dead").fence
    lua.advance(-3_600_000)
    assert claim(part, "b").fence == dead + 1
    assert claim(part, "dead").fence == 0, "the former holder is refused, even if it is live"
