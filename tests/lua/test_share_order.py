"""Check share.order=key: records of a key are delivered one after another, others pass them."""

import random

import pytest

from korvet.base.errors import ErrorCode
from korvet.share.service import Acknowledge
from korvet.testing import LuaRunner
from tests.lua.partition import Part
from tests.lua.share import LIMIT, LOCK_MS, Group
from tests.selection import seeds
from tests.support.store_runners import Runner

ACCEPT, RELEASE, REJECT, GAP = (
    Acknowledge.ACCEPT,
    Acknowledge.RELEASE,
    Acknowledge.REJECT,
    Acknowledge.GAP,
)
WHOLE = 1 << 30


class Ordered:
    """A share group that is ordered by key, and the keys of its topic's records."""

    def __init__(self, runner: Runner, keys: str, **words: int) -> None:
        self.part = Part(runner, mode="dense").create()
        self.group = Group(self.part, **words)
        self.keys: list[str] = []
        self.append(keys)
        assert self.group.probe(ordered=1).ordered == 1

    def append(self, keys: str) -> None:
        """Append one record for each character, its key."""
        if keys:
            self.part.append(len(keys))
            self.keys += keys

    def acquire(self, member: str, most: int = 500, read: int = WHOLE) -> list[int]:
        """Acquire some of the next `read` records; return their offsets."""
        start = self.group.probe(ordered=1).next
        last = min(start + read, len(self.keys)) - 1
        if last < start:
            return []
        records = [(at, self.keys[at]) for at in range(start, last + 1)]
        runs = self.group.acquire(
            member, *records, read=(start, last), most=most, ordered=1, has_keys=1
        )
        return [at for first, end, _ in runs for at in range(first, end + 1)]

    def acknowledge(self, member: str, type: int, *offsets: int, **words: int) -> None:
        ranges = [(at, at, int(type)) for at in offsets]
        assert self.group.acknowledge(member, *ranges, **words) == ErrorCode.NONE


def test_a_key_has_one_record_at_a_time_and_other_keys_pass(runner: Runner) -> None:
    group = Ordered(runner, "aabacb")
    assert group.acquire("m") == [0, 2, 4]
    assert group.acquire("n") == []
    group.acknowledge("m", ACCEPT, 0)
    assert group.acquire("n") == [1]
    group.acknowledge("m", REJECT, 2)
    group.acknowledge("n", GAP, 1)
    assert group.acquire("m") == [3, 5]
    group.acknowledge("m", ACCEPT, 3, 4, 5)
    assert group.group.rows() == []
    assert group.group.counts() == (6, 6, 0, 0, 4, 2)


def test_a_released_record_comes_before_the_later_ones_of_its_key(runner: Runner) -> None:
    group = Ordered(runner, "aaa")
    assert group.acquire("m") == [0]
    group.acknowledge("m", RELEASE, 0)
    assert group.acquire("n") == [0]
    group.group.release("n")
    assert group.acquire("m") == [0]
    group.acknowledge("m", ACCEPT, 0)
    assert group.acquire("m") == [1]


def test_a_record_whose_delay_has_not_ended_holds_its_key() -> None:
    runner = LuaRunner()
    group = Ordered(runner, "aab")
    assert group.acquire("m", most=1) == [0]
    group.acknowledge("m", RELEASE, 0, backoff_ms=100, max_backoff_ms=100)
    assert group.acquire("m") == [2]
    runner.advance(100)
    assert group.acquire("m") == [0]
    runner.advance(LOCK_MS)
    assert group.acquire("n") == [0, 2]


def test_many_records_of_one_key_do_not_hide_another_key(runner: Runner) -> None:
    group = Ordered(runner, "a" * 30 + "b" + "a" * 5)
    assert group.acquire("m", read=10) == [0]
    assert group.acquire("n", read=10) == []
    assert group.acquire("n", read=10) == []
    assert group.acquire("n", read=10) == [30]
    group.acknowledge("m", ACCEPT, 0)
    assert group.acquire("m", read=10) == [1]


def test_the_order_changes_only_without_records_in_delivery(runner: Runner) -> None:
    group = Ordered(runner, "aab")
    assert group.acquire("m", most=1) == [0]
    reply = group.group.probe(ordered=0)
    assert reply.ordered == 1
    assert group.group.acquire("m", (1, 2), ordered=0) == []
    group.acknowledge("m", ACCEPT, 0)
    assert group.group.probe(ordered=0).ordered == 0
    assert group.group.acquire("m", (1, 2)) == [(1, 2, 1)]
    assert group.group.probe(ordered=1).ordered == 0


class Run:
    """A random run: records that members hold, and records delivered and finished."""

    def __init__(self, seed: int) -> None:
        self.pick, self.lua = random.Random(seed), LuaRunner()
        self.group = Ordered(self.lua, "", max_locks=self.pick.choice((8, 40)))
        self.held: dict[str, list[int]] = {"x": [], "y": [], "z": []}
        self.delivered: list[int] = []
        self.finished: set[int] = set()

    def step(self) -> None:
        often = (*(self.acquire,) * 4, *(self.acknowledge,) * 3, *(self.append,) * 2)
        acts = (*often, self.wait, self.end)
        self.pick.choice(acts)(self.pick.choice("xyz"))

    def append(self, _: str) -> None:
        if len(self.group.keys) < 120:
            self.group.append("".join(self.pick.choices("aaabcdefg", k=self.pick.randint(1, 6))))

    def acquire(self, member: str) -> None:
        got = self.group.acquire(member, self.pick.randint(1, 5), self.pick.randint(1, 12))
        keys = self.group.keys
        for at in got:
            assert {n for n in range(at) if keys[n] == keys[at]} <= self.finished
        self.delivered += got
        if self.pick.random() < 0.9:  # else the reply is lost
            self.held[member] += got

    def acknowledge(self, member: str) -> None:
        if not self.held[member]:
            return
        at = self.held[member].pop(self.pick.randrange(len(self.held[member])))
        type = self.pick.choice((ACCEPT, ACCEPT, REJECT, RELEASE))
        delay = self.pick.choice((0, 30))
        error = self.group.group.acknowledge(member, (at, at, int(type)), backoff_ms=delay)
        is_last = self.delivered.count(at) >= LIMIT
        if error == ErrorCode.NONE and (type != RELEASE or is_last):
            self.finished.add(at)

    def wait(self, _: str) -> None:
        self.lua.advance(self.pick.choice((10, 50, LOCK_MS)))
        self.note_archived()

    def end(self, member: str) -> None:
        self.group.group.release(member)
        self.held[member] = []
        self.note_archived()

    def note_archived(self) -> None:
        """Archive records whose last lock has expired, by a call; note them as finished."""
        self.group.group.probe(ordered=1)
        rows = [row.split(b":") for row in self.group.group.rows()]
        unfinished = {int(row[2]) for row in rows if row[1] == b"e"}
        self.finished |= set(self.delivered) - unfinished

    def drain(self) -> None:
        """Deliver every record that is left."""
        for _ in range(1000):
            self.lua.advance(LOCK_MS)
            got = self.group.acquire("x", 100)
            for at in got:
                self.group.group.acknowledge("x", (at, at, int(ACCEPT)))
            if not got and self.group.group.probe(ordered=1).next == len(self.group.keys):
                break
        assert self.group.group.rows() == []
        assert self.group.group.counts()[0] == len(self.group.keys)


@pytest.mark.parametrize("seed", seeds(range(10)))
def test_random_interleavings_keep_the_order_of_each_key(seed: int) -> None:
    run = Run(seed)
    for _ in range(200):
        run.step()
    run.drain()
