"""Runs that make the scripts of share groups do the most that the limits allow."""

from typing import Any

from korvet.share.service import Acknowledge
from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, Part
from tests.lua.share import Group

LOCKS = 4000
"""The default of group.share.max.partition.max.record.locks."""
STEP = 1000
"""The runs of one call of share.acknowledge."""
PART = 10
"""Most scripts are tested with a tenth of the locks: their work is proportional."""
HELD = 500
"""The records of one call of share.hold."""
LETTERS = 100
"""Runs of dead letters of one call."""


def held(lua: LuaRunner, count: int = LOCKS // PART, ordered: int = 0, **changes: Any) -> Group:
    """Return a group whose member holds every second of 2 * `count` records, each in a run."""
    part = Part(lua, "record", "dense").create()
    part.append(2 * count)
    group, most = Group(part, max_locks=2 * count, **changes), 2 * count
    for first in range(0, most, STEP):
        last = min(first + STEP, most) - 1
        ranges: list[tuple[int, Any]] = [(first, last)]
        if ordered:
            ranges = [(n, f"{n:040}") for n in range(first, last + 1)]
        words: dict[str, Any] = {"most": STEP, "ordered": ordered, "has_keys": ordered}
        assert group.acquire("m", *ranges, read=(first, last), **words) == [(first, last, 1)]
    for first in range(0, count, STEP):
        rows = range(first, min(first + STEP, count))
        assert not group.acknowledge(
            "m", *((2 * n + 1, 2 * n + 1, Acknowledge.ACCEPT) for n in rows)
        )
    return group


def acknowledge(lua: LuaRunner) -> None:
    """Acknowledge a step of an ordered group: other types and groups have less work."""
    group = held(lua, STEP, 1)
    assert not group.acknowledge("m", *((2 * n, 2 * n, Acknowledge.ACCEPT) for n in range(STEP)))


def hold(lua: LuaRunner) -> None:
    """Renew the locks of as many runs as a call may have records."""
    offsets = [2 * n for n in range(HELD)]
    assert held(lua, HELD).hold("m", *offsets, ends_steps=1, lock_ms=1) == offsets


def release(lua: LuaRunner) -> None:
    """Release a step; then free a step of expired locks."""
    assert held(lua, STEP, ordered=1).release("m") == STEP
    lua.command("FLUSHALL")
    group = held(lua, STEP, ordered=1)
    lua.advance(10**6)
    assert group.release("m") == 0


def acquire(lua: LuaRunner) -> None:
    """Acquire as many records as a call may, in the order of their keys."""
    group, count = held(lua, STEP, ordered=1), STEP
    group.release("m")
    ranges = [(2 * n, f"{2 * n:040}") for n in range(count)]
    words: dict[str, Any] = {"ordered": 1, "has_keys": 1}
    assert len(group.acquire("m", *ranges, most=LOCKS, **words)) == STEP


def reset(lua: LuaRunner) -> None:
    group = held(lua, ordered=1)
    call = KEYS.partition(group.part.topic, 0, ID).share_reset(group=group.name, offset=1)
    assert not lua.run(call).error


def delete(lua: LuaRunner) -> None:
    group = held(lua, ordered=1)
    call = KEYS.partition(group.part.topic, 0, ID).share_delete(group=group.name)
    assert lua.run(call).deleted


def dead_letters(lua: LuaRunner) -> None:
    group = held(lua, LETTERS, dead_letters=1)
    assert not group.acknowledge("m", *((2 * n, 2 * n, 3) for n in range(LETTERS)))
    assert len(group.list_dead_letters(7)[1]) == LETTERS
    assert group.describe(LETTERS).dead_letters == LETTERS
    assert group.copied(LETTERS) == 0


RUNS = {
    "share.acknowledge": (acknowledge, 1),
    "share.acquire": (acquire, 1),
    "share.dead_letters": (dead_letters, 1),
    "share.dead_letters_copied": (dead_letters, 1),
    "share.delete": (delete, PART),
    "share.hold": (hold, 1),
    "share.release": (release, 1),
    "share.reset": (reset, PART),
}
"""Runs by script, and what their work is to be multiplied by."""
