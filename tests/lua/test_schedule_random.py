"""Check scheduled records under random interleavings.

Producers, movers and cancellations interleave, and replies are lost. A model in Python does the
same; log and schedule equal the model's after every step.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.append_call import Row
from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, Part
from tests.lua.test_schedule import add, cancel, move, row, schedule_keys, values, waiting
from tests.selection import seeds

SEEDS = range(4)
STEPS = 120
PRODUCERS = 3
MAX_COUNT = 40
IDS = (b"", b"", b"", b"x", b"y")


@dataclass
class Waiting:
    """A record of the model's schedule."""

    due: int
    number: int
    value: bytes
    id: bytes


@dataclass
class World:
    """A partition, its model, and the last batch of each producer."""

    part: Part
    random: Random
    log: list[bytes] = field(default_factory=list)
    schedule: list[Waiting] = field(default_factory=list)
    numbers: int = 0
    words: int = 0
    sequences: list[int] = field(default_factory=lambda: [0] * PRODUCERS)
    unanswered: dict[int, tuple[list[Row], list[bytes], int]] = field(default_factory=dict)

    @property
    def now(self) -> int:
        lua = self.part.runner
        assert isinstance(lua, LuaRunner)
        return lua.now_ms()

    def step(self) -> None:
        action = self.random.choice(
            [self.produce] * 6 + [self.move] * 4 + [self.advance] * 4 + [self.cancel, self.native]
        )
        action()
        assert values(self.part) == self.log
        assert waiting(self.part)[0] == len(self.schedule)

    def word(self) -> bytes:
        self.words += 1
        return b"%d" % self.words

    def batch(self) -> tuple[list[Row], list[bytes]]:
        """Return random rows, and the values of ordinary records."""
        rows, ordinary = list[Row](), list[bytes]()
        for _ in range(self.random.randint(1, 6)):
            kind = self.random.choice(("at", "in", "in", "cancel", "ordinary"))
            if kind == "ordinary":
                ordinary.append(self.word())
            elif kind == "cancel":
                rows.append(cancel(self.random.choice((b"x", b"y", b"z"))))
            else:
                ms = self.random.randint(0, 40)
                if kind == "at":
                    ms += self.now - 20
                rows.append(row(self.part, self.word(), kind, ms, self.random.choice(IDS)))
        return rows, ordinary

    def produce(self) -> None:
        """Send the next batch of a producer, or repeat the one whose reply was lost."""
        producer = self.random.randrange(PRODUCERS)
        again = producer in self.unanswered
        if not again:
            self.unanswered[producer] = (*self.batch(), self.sequences[producer])
        rows, ordinary, sequence = self.unanswered[producer]
        if not rows:
            del self.unanswered[producer]
            return
        stored = self.sequences[producer] != sequence
        reply = add(
            self.part,
            *rows,
            ordinary=len(ordinary),
            fields=self.fields(ordinary),
            size=10 * len(ordinary),
            max_count=MAX_COUNT,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        new = self.added(rows)
        if not stored and new > 0 and len(self.schedule) + new > MAX_COUNT:
            assert reply.error == ErrorCode.POLICY_VIOLATION
            del self.unanswered[producer]
            return
        assert (reply.error, reply.stored) == (0, int(not stored))
        if not stored:
            self.sequences[producer] += len(rows) + len(ordinary)
            self.store(rows, ordinary)
        if self.random.random() < 0.6:
            del self.unanswered[producer]

    def added(self, rows: list[Row]) -> int:
        """Return how many more records wait after these rows."""
        ids = {each.id for each in rows if each.id}
        last = {each.id: each.kind for each in rows if each.id}
        named = sum(kind != "cancel" for kind in last.values())
        unnamed = sum(not each.id for each in rows)
        return named + unnamed - sum(each.id in ids for each in self.schedule)

    def fields(self, ordinary: list[bytes]) -> list[Any]:
        if not ordinary:
            return []
        if self.part.form == "batch":
            return [b"".join(b"<%b>" % word for word in ordinary)]
        return [word for value in ordinary for word in (2, b"value", value)]

    def store(self, rows: list[Row], ordinary: list[bytes]) -> None:
        if ordinary and self.part.form == "batch":
            self.log += self.fields(ordinary)
        else:
            self.log += ordinary
        for each in rows:
            if each.id:
                self.schedule = [old for old in self.schedule if old.id != each.id]
            if each.kind != "cancel":
                due = each.ms + (self.now if each.kind == "in" else 0)
                assert isinstance(each.payload, bytes)
                value = each.payload
                if self.part.form == "record":
                    value = value.split(b":")[-1]
                self.schedule.append(Waiting(due, self.numbers, value, each.id))
                self.numbers += 1

    def move(self) -> None:
        """Move due records, as any broker. A lost reply does no harm: the next call continues."""
        most = self.random.choice((1, 3, 100))
        reply = move(self.part, max_rows=most)
        self.schedule.sort(key=lambda each: (each.due, each.number))
        due = [each for each in self.schedule if each.due <= self.now][:most]
        assert reply.records == len(due)
        assert reply.late_ms == (self.now - due[0].due if due else -1)
        self.log += [each.value for each in due]
        self.schedule = [each for each in self.schedule if each not in due]
        left = self.schedule[0].due - self.now if self.schedule else -1
        assert reply.wait_ms == (max(0, left) if self.schedule else -1)

    def advance(self) -> None:
        lua = self.part.runner
        assert isinstance(lua, LuaRunner)
        lua.advance(self.random.randint(0, 15))

    def cancel(self) -> None:
        by: dict[str, Any] = {"number": self.random.randrange(self.numbers + 1)}
        gone = [each for each in self.schedule if each.number == by["number"]]
        if self.random.random() < 0.5:
            by = {"id": b"x"}
            gone = [each for each in self.schedule if each.id == b"x"]
        reply = self.part.runner.run(KEYS.partition("t", 0, ID).schedule_cancel(**by))
        assert reply.cancelled == len(gone)
        self.schedule = [each for each in self.schedule if each not in gone]

    def native(self) -> None:
        """Append to the stream as another client."""
        if self.part.form == "record":
            word = self.word()
            self.part.native(b"value", word)
            self.log.append(word)


@pytest.mark.parametrize("seed", seeds(SEEDS, quick=1))
@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("mode", ["time", "dense"])
def test_log_and_schedule_are_those_of_the_model(
    lua: LuaRunner, form: str, mode: str, seed: int
) -> None:
    world = World(Part(lua, form, mode).create(), Random(f"{form}{mode}{seed}"))
    for _ in range(STEPS):
        world.step()
    lua.advance(1000)
    while world.schedule:
        world.move()
    assert values(world.part) == world.log
    assert lua.command("EXISTS", *schedule_keys(world.part)) == 0
    offsets = world.part.offsets()
    assert offsets == sorted(set(offsets))
