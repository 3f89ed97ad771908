"""Check random interleavings of members, expiry, deletions and lost replies against a model."""

import random
from itertools import pairwise

import pytest

from korvet.base.errors import ErrorCode
from korvet.testing import LuaRunner
from tests.lua.partition import Part
from tests.lua.share import Group
from tests.lua.share_model import ShareModel
from tests.selection import seeds

MAX_LOCKS, LOCK_MS = 12, 1_000
MEMBERS = ("a", "b", "c")


class Run:
    """A random run: the group, the model, and the records of each member by its replies."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lua = LuaRunner()
        self.part = Part(self.lua, mode="dense").create()
        limit = 2 + seed % 5
        self.group = Group(self.part, limit=limit, max_locks=MAX_LOCKS, dead_letters=seed % 2)
        self.letters: dict[int, tuple[int, int, int]] = {}
        self.copied = 0
        self.model = ShareModel(limit, MAX_LOCKS, LOCK_MS)
        self.held: dict[str, list[int]] = {member: [] for member in MEMBERS}
        self.batches: list[tuple[int, int]] = []
        self.log_start = 0
        self.group.probe()

    @property
    def log_end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else 0

    def step(self) -> None:
        acts = (
            *(self.append,) * 3,
            *(self.acquire,) * 6,
            *(self.acknowledge,) * 6,
            self.leave,
            self.copy,
            self.advance,
            self.trim,
        )
        self.random.choice(acts)()
        assert self.group.counts() == self.model.counts(self.log_start)
        self.check_rows()

    def check_rows(self) -> None:
        """Check that the rows are the model's cells, in runs that do not overlap."""
        found = {}
        for row in self.group.rows():
            _, kind, first, last, *rest = row.decode().split(":")
            if kind in "cd":
                continue
            for offset in range(int(first), int(last) + 1):
                assert offset not in found
                found[offset] = (int(rest[0]), rest[2] if kind == "b" else None)
        cells = {
            at: (cell.deliveries, cell.member if cell.state != "available" else None)
            for at, cell in self.model.cells.items()
        }
        assert found == cells
        times = sum(row.split(b":")[1] == b"c" for row in self.group.rows())
        assert times == sum(row.split(b":")[1] == b"b" for row in self.group.rows())

    def append(self) -> None:
        count = self.random.randint(1, 5)
        base = self.part.append(count).base
        self.batches.append((base, base + count - 1))

    def acquire(self) -> None:
        """Read some batches from an offset that may be old, some of them without a record."""
        pick, member = self.random, self.random.choice(MEMBERS)
        places = [self.group.probe().next, self.model.start, pick.randint(0, self.log_end)]
        self.model.free_expired(self.lua.now_ms())
        self.model.drop_below(self.log_start)
        start = max(pick.choice(places), self.log_start)
        whole = [(max(a, start), b) for a, b in self.batches if b >= start]
        whole = whole[: pick.randint(1, 4)]
        if not whole:
            return
        read = (start, whole[-1][1])
        ranges = [one for one in whole if pick.random() < 0.8]
        most, exact = pick.randint(1, 6), pick.randint(0, 1)
        now = self.lua.now_ms()
        expected = self.model.acquire(member, ranges, read, now, most, exact)
        runs = self.group.acquire(
            member, *ranges, read=read, most=most, exact=exact, lock_ms=LOCK_MS
        )
        got = [(at, times) for first, last, times in runs for at in range(first, last + 1)]
        assert got == expected
        for before, after in pairwise(runs):
            assert before[1] + 1 < after[0] or before[2] != after[2]
        if pick.random() < 0.8:  # else the reply is lost
            self.held[member] += [at for at, _ in got]

    def acknowledge(self) -> None:
        pick, member = self.random, self.random.choice(MEMBERS)
        held = sorted(set(self.held[member]))
        if pick.random() < 0.1:
            held = sorted(pick.sample(range(self.log_end + 2), min(3, self.log_end)))
        offsets = [at for at in held if pick.random() < 0.6]
        if not offsets:
            return
        ranges: list[tuple[int, int, int]] = []
        for at in offsets:
            type = pick.choice((0, 1, 1, 1, 2, 2, 3, 4))
            if ranges and ranges[-1][1] + 1 == at and pick.random() < 0.7:
                ranges[-1] = (ranges[-1][0], at, ranges[-1][2])
            else:
                ranges.append((at, at, type))
        backoff = pick.choice((0, 0, 50))
        for _ in range(1 if pick.random() < 0.8 else 2):  # twice: the first reply is lost
            expected = self.model.acknowledge(member, ranges, self.lua.now_ms(), backoff)
            error = self.group.acknowledge(
                member, *ranges, lock_ms=LOCK_MS, backoff_ms=backoff, max_backoff_ms=4 * backoff
            )
            assert ErrorCode(error).name == expected
        renewed = {at for first, last, type in ranges if type == 4 for at in range(first, last + 1)}
        self.held[member] = [at for at in held if at not in offsets or at in renewed]

    def leave(self) -> None:
        member = self.random.choice(MEMBERS)
        self.model.free_expired(self.lua.now_ms())
        assert self.group.release(member) == self.model.release(member)
        self.held[member] = []

    def copy(self) -> None:
        """Copy some dead letters: each has one number, which never changes."""
        if not self.group.dead_letters:
            assert self.group.list_dead_letters() == (0, [])
            return
        producer, rows = self.group.list_dead_letters(producer_id=7)
        assert producer == 7
        pending = self.copied
        for number, first, last, deliveries, reason in rows:
            for offset in range(first, last + 1):
                letter = (offset, deliveries, reason)
                assert number + offset - first == pending
                assert self.letters.setdefault(pending, letter) == letter
                pending += 1
        assert sorted(self.letters.values()) == sorted(self.model.letters)
        assert pending == len(self.letters)
        to = self.random.randint(self.copied, pending)
        for _ in range(1 if self.random.random() < 0.8 else 2):
            assert self.group.copied(to) == pending - to
        self.copied = to

    def advance(self) -> None:
        self.lua.advance(self.random.choice((1, 40, 200, LOCK_MS)))

    def trim(self) -> None:
        if self.random.random() < 0.3 and self.log_end:
            before = self.random.randint(self.log_start, self.log_end)
            self.log_start = self.part.truncate(before).start

    def drain(self) -> None:
        """Acquire or archive every record that is left."""
        for _ in range(24):
            self.lua.advance(LOCK_MS)
            self.model.free_expired(self.lua.now_ms())
            self.model.drop_below(self.log_start)
            start = self.group.probe().next
            whole = [(max(a, start), b) for a, b in self.batches if b >= start]
            if not whole:
                break
            read = (start, whole[-1][1])
            now = self.lua.now_ms()
            expected = self.model.acquire("a", whole, read, now, 5, 0)
            runs = self.group.acquire("a", *whole, read=read, most=5, lock_ms=LOCK_MS)
            assert sum(last - first + 1 for first, last, _ in runs) == len(expected) > 0
            for first, last, _ in runs:
                assert self.group.accept("a", first, last) == ErrorCode.NONE
                assert self.model.acknowledge("a", [(first, last, 1)], now, 0) == "NONE"
        self.copy()
        assert self.group.copied(len(self.letters)) == 0
        assert self.group.rows() == []
        assert self.group.counts()[0] == max(self.log_end, self.log_start)


@pytest.mark.parametrize("seed", seeds(range(24), quick=4))
def test_random_interleavings_do_what_the_model_does(seed: int) -> None:
    run = Run(seed)
    for _ in range(120):
        run.step()
    run.drain()
