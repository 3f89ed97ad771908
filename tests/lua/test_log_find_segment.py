"""Check log.find_segment: oldest segment with a record at or after a timestamp, in few calls."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from korvet.remote_log.manifest import SegmentRow
from korvet.scripts.calls.partition import FindSegmentReply
from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.selection import seeds
from tests.support.redis_servers import TestServer
from tests.support.store_runners import StoreRunner

SPAN = 10


def find(part: Part, timestamp: int, topic_id: str = ID) -> FindSegmentReply:
    call = KEYS.partition("t", 0, topic_id).find_segment(timestamp=timestamp)
    return part.runner.run(call)


def restored(runner: Any, newest: Sequence[int]) -> Part:
    """Return a partition with a segment for each newest timestamp."""
    part = Part(runner, mode="dense")
    rows = [
        (at * SPAN, at * SPAN + SPAN - 1, SPAN, 100, f"10:{each}:{at:x}")
        for at, each in enumerate(newest)
    ]
    shape: Any = {"format": part.form, "mode": part.mode, "bits": part.bits}
    end = len(newest) * SPAN
    call = KEYS.partition("t", 0, ID).restore(rows, **shape, epoch=0, start=0, next=end)
    assert part.runner.run(call).error == 0
    return part


def expire(part: Part, keep: int) -> int:
    """Remove the oldest segments until `keep` are left, or those with records in Redis."""
    removed = 64
    while removed == 64:
        call = KEYS.partition("t", 0, ID).expire_segments(
            retention_ms=-1, retention_bytes=keep * 100, delay_ms=0, most=64
        )
        removed = part.runner.run(call).removed
    left = part.runner.command("ZCARD", part.keys.segments)
    assert isinstance(left, int)
    return left


def add(part: Part, newest: int) -> None:
    """Append records and copy them to a segment."""
    for _ in range(SPAN):
        part.append(size=1)
    claim = part.runner.run(KEYS.partition("t", 0, ID).claim_copy(holder="a", ttl_ms=1_000_000))
    first = claim.first
    call = KEYS.partition("t", 0, ID).add_segment(
        fence=claim.fence,
        first=first,
        last=first + SPAN - 1,
        records=SPAN,
        size=100,
        row=f"10:{newest}:{first:x}",
    )
    assert part.runner.run(call).added == 1


def expected(newest: Sequence[int], removed: int, timestamp: int) -> int | None:
    """Return the number of the segment to find."""
    live = enumerate(newest[removed:], removed)
    return next((at for at, each in live if each >= timestamp), None)


def check(part: Part, newest: Sequence[int], removed: int) -> None:
    """Search for times around those of the segments, and for the newest one."""
    for timestamp in {0, *(each + more for each in newest[-40:] for more in (0, 1)), -3}:
        wanted = max(newest[removed:], default=-1) if timestamp == -3 else timestamp
        reply = find(part, timestamp)
        at = expected(newest, removed, wanted) if wanted >= 0 else None
        assert (reply.error, reply.timestamp) == (0, wanted)
        found = SegmentRow.parse(reply.row).first // SPAN if reply.row else None
        assert found == at, timestamp


@pytest.mark.parametrize("seed", seeds(range(6), quick=1))
def test_times_in_any_order_are_found_while_segments_come_and_go(lua: LuaRunner, seed: int) -> None:
    chance = random.Random(seed)
    count = chance.choice((0, 5, 40, 300))
    rising = seed % 2
    newest = [at * 10 * rising + chance.randrange(-1, 400) for at in range(count)]
    part, removed = restored(lua, newest), 0
    for _ in range(4):
        check(part, newest, removed)
        keep = chance.randrange(len(newest) - removed + 1)
        removed = len(newest) - expire(part, keep)
        check(part, newest, removed)
        for _ in range(chance.randrange(40)):
            newest.append(chance.randrange(-1, 500))
            add(part, newest[-1])


@pytest.mark.parametrize("at", [0, 100, 230, 255])
def test_the_only_late_segment_of_256_is_found(lua: LuaRunner, at: int) -> None:
    newest = [5] * 256
    newest[at] = 9
    assert SegmentRow.parse(find(restored(lua, newest), 9).row).first == at * SPAN


def test_ten_thousand_segments_take_few_calls(lua: LuaRunner) -> None:
    newest = list(range(0, 100_000, 10))
    part = restored(lua, newest)
    expire(part, 9_993)
    for timestamp in (0, 71, 50_005, 40_959, 99_990, 99_991, -3):
        reply = find(part, timestamp)  # the runner checks the calls that the contract allows
        wanted = 99_990 if timestamp == -3 else max(timestamp, 70)
        first = -(-wanted // 10) * SPAN
        assert (SegmentRow.parse(reply.row).first if reply.row else -1) == (
            first if wanted <= 99_990 else -1
        )


def test_a_segment_takes_less_than_200_bytes_of_redis(valkey_server: TestServer) -> None:
    with valkey_server.client() as client:
        client.flushall()
        measure(StoreRunner(client))


def measure(runner: StoreRunner) -> None:
    """Check the memory of a partition with a thousand segments."""
    part = Part(runner, mode="dense")
    step, size, begin = 320_000, 33_570_123, 3_000_000_000
    rows = [
        (first, first + step - 1, step, size, f"16123:{1_764_086_400_000 + first}:{first:012x}")
        for first in range(begin, begin + 1000 * step, step)
    ]
    shape: Any = {"format": part.form, "mode": part.mode, "bits": part.bits}
    end = begin + 1000 * step
    call = KEYS.partition("t", 0, ID).restore(rows, **shape, epoch=0, start=begin, next=end)
    assert part.runner.run(call).error == 0
    used = runner.command("MEMORY", "USAGE", part.keys.segments, "SAMPLES", 0)
    assert isinstance(used, int) and used < 1000 * 200


def test_errors(lua: LuaRunner) -> None:
    part = restored(lua, [5])
    assert find(part, 0, OTHER_ID).error == 100
    assert find(Part(lua, mode="dense"), 0).error == 0
    lua.command("DEL", part.keys.log)
    assert find(part, 0).error == 3
