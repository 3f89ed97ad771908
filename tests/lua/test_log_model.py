"""Check a log against a model: calls are lost, repeated, late and in any order.

An idempotent producer, two brokers that copy records to segments, retention and deletion send calls
to one partition. The network of the model holds every call: it may run at once or much later, once
or twice, and its reply may get lost.

Invariants
- a batch is stored at most once, and batches are in the order of their sequences
- an acknowledged batch has the offset that its reply named
- offsets only grow: no batch gets an offset at or below one that was given
- a record from the log start on is in Redis or in exactly one segment
- segments join without a gap or an overlap, from the log start on
- the log start never moves back

Transactions, group commits and the rows of epochs have their own random tests
(test_transactions_random, test_group_random, test_leader_epochs).
"""

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts import bundle
from korvet.scripts.calls.partition import AddSegmentReply, AppendReply, ClaimCopyReply
from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, Part
from tests.selection import seeds

STEP = 65_536
"""Bytes of an index step: each batch begins one, so that retention can end at any."""
IN_FLIGHT = 5
SENT_AGAIN = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}


class LogModel:
    """Holds one partition, and the calls that are under way to it."""

    def __init__(self, mode: str, random: Random) -> None:
        self.random = random
        self.part = Part(LuaRunner(), mode=mode).create()
        self.calls: list[tuple[Any, Callable[[Any], None]]] = []
        self.sizes: list[int] = []
        """Records of each batch that the producer has built."""
        self.acknowledged: dict[int, int] = {}
        self.given: list[tuple[int, int]] = []
        """Offset and batch of every record that was stored, in the order of offsets."""
        self.leases: list[tuple[int, int]] = []
        self.start = 0

    # What clients and brokers send.

    def produce(self) -> None:
        if len(self.sizes) - len(self.acknowledged) < IN_FLIGHT:
            self.sizes.append(self.random.randint(1, 3))
            self.send(len(self.sizes) - 1)

    def repeat(self) -> None:
        """Send all batches without an acknowledgement again, in order."""
        for batch in range(len(self.sizes)):
            if batch not in self.acknowledged:
                self.send(batch)

    def send(self, batch: int) -> None:
        count = self.sizes[batch]
        call = self.part.call(
            count,
            size=STEP,
            producer_id=1,
            producer_epoch=0,
            base_sequence=sum(self.sizes[:batch]),
            fields=self.part.fields(count, b"%d:" % batch),
        )

        def answered(reply: AppendReply) -> None:
            if not reply.error:
                assert self.acknowledged.setdefault(batch, reply.base) == reply.base
            elif reply.error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                assert batch in {known for _, known in self.given}
                self.acknowledged.setdefault(batch, -1)
            else:
                assert reply.error in SENT_AGAIN, ErrorCode(reply.error)

        self.calls.append((call, answered))

    def claim(self) -> None:
        def answered(reply: ClaimCopyReply) -> None:
            if reply.fence:
                self.leases.append((reply.fence, reply.first))

        holder = self.random.choice("ab")
        call = KEYS.partition("t", 0, ID).claim_copy(holder=holder, ttl_ms=1000)
        self.calls.append((call, answered))

    def add_segment(self) -> None:
        """Copy records from where a lease began, also a lease that another broker holds by now."""
        if not self.leases:
            return
        fence, first = self.random.choice(self.leases[-4:])
        rest = [offset for offset, _ in self.given if offset >= first]
        if rest:
            last = self.random.choice(rest[:4])
            call = KEYS.partition("t", 0, ID).add_segment(
                fence=fence,
                first=first,
                last=last,
                records=sum(offset <= last for offset in rest),
                size=100,
                row=f"10:{self.part.runner.now_ms()}:id{len(self.calls)}",
            )
            self.calls.append((call, self._added))

    def _added(self, reply: AddSegmentReply) -> None:
        if reply.added:
            self.leases.append((self.leases[-1][0], reply.tiered))

    def retain(self) -> None:
        call = KEYS.partition("t", 0, ID).apply_retention(
            retention_ms=-1,
            retention_bytes=self.random.randint(0, 6) * STEP,
            steps=64,
            is_local=self.random.randint(0, 1),
        )
        self.calls.append((call, lambda reply: None))

    def delete(self) -> None:
        if self.given:
            before, _ = self.random.choice(self.given)
            call = KEYS.partition("t", 0, ID).delete_records(before=before, steps=64)
            self.calls.append((call, lambda reply: None))

    def wait(self) -> None:
        self.part.runner.advance(self.random.choice([0, 1, 700, 2000]))  # type: ignore[attr-defined]

    # The network.

    def run_one(self) -> None:
        """Run a call; its reply may get lost, and it may run again later."""
        if not self.calls:
            return
        at = self.random.randrange(len(self.calls))
        call, answered = self.calls[at] if self.random.random() < 0.2 else self.calls.pop(at)
        reply = self.part.runner.run(call)
        self.note_new()
        if self.random.random() < 0.7:
            answered(reply)

    def run_all(self) -> None:
        """Run what is under way in order, as a network without faults does."""
        for call, answered in self.calls:
            reply = self.part.runner.run(call)
            self.note_new()
            answered(reply)
        self.calls.clear()

    def note_new(self) -> None:
        last = self.given[-1][0] if self.given else -1
        rows: Any = self.part.runner.command("XRANGE", self.part.keys.stream, "-", "+")
        for (_, fields), offset in zip(rows, self.part.offsets(), strict=True):
            if offset > last:
                self.given.append((offset, int(fields[fields.index(b"value") + 1].split(b":")[0])))

    # Invariants.

    def check_batches(self) -> None:
        """Check that batches are stored once, in order, at offsets that only grow."""
        assert all(before < after for (before, _), (after, _) in pairwise(self.given))
        batches = [batch for _, batch in self.given]
        assert batches == sorted(batches)
        firsts = {batch: offset for offset, batch in reversed(self.given)}
        assert len(batches) == sum(self.sizes[batch] for batch in firsts)
        for batch, base in self.acknowledged.items():
            assert base in (-1, firsts[batch])

    def check_places(self) -> None:
        """Check that every record is in Redis or in one segment, and that segments join."""
        bounds = self.part.bounds()
        assert bounds.start >= self.start, "the log start moves back"
        self.start = bounds.start
        segments = list(self.segments())
        for (_, ended), (begun, _) in pairwise(segments):
            assert begun == ended + 1 or ended < begun <= bounds.start
        local = {offset for offset, _ in self.given if offset >= bounds.local_first}
        assert local <= set(self.part.offsets())
        for offset, _ in self.given:
            if bounds.start <= offset < bounds.local_first:
                assert sum(first <= offset <= last for first, last in segments) == 1, offset

    def segments(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last offset of each segment in the manifest."""
        rows: Any = self.part.runner.command("ZRANGE", self.part.keys.segments, 0, -1)
        for row in rows:
            first, length, *_ = row.split(b":")
            yield int(first), int(first) + int(length)


STEPS = 200
WEIGHTS = {
    "produce": 6,
    "repeat": 2,
    "claim": 2,
    "add_segment": 3,
    "retain": 1,
    "delete": 1,
    "wait": 1,
    "run_one": 12,
    "run_all": 1,
}
"""How often each step is taken, in proportion."""


def check(mode: str, seed: int) -> LogModel:
    """Take random steps, and check the invariants after each."""
    random = Random(seed)
    model = LogModel(mode, random)
    for name in random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
        getattr(model, name)()
        model.check_batches()
        model.check_places()
    return model


@pytest.mark.parametrize("mode", ["dense", "time"])
@pytest.mark.parametrize("seed", seeds(range(8)))
def test_a_log_keeps_its_invariants(mode: str, seed: int) -> None:
    model = check(mode, seed)
    assert len(model.acknowledged) > 5 and list(model.segments()), "the steps reach something"


BUGS = {
    "lib/append.lua": ("error = codes.OUT_OF_ORDER_SEQUENCE_NUMBER", "error = nil"),
    "log/add_segment.lua": ("or tiered ~= first ", ""),
    "log/apply_retention.lua": ("target = math.min(target, state.tiered)", ""),
    "lib/producer_sequence.lua": ("(last + 1) % WRAP", "last % WRAP"),
}
"""A script, and what a bug makes of a part of its text."""


@pytest.mark.parametrize("script", BUGS)
def test_a_bug_in_a_script_is_found(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lua"
    shutil.copytree(bundle.default_root(), root)  # type: ignore[call-overload]
    right, wrong = BUGS[script]
    text = (root / script).read_text()
    assert right in text
    (root / script).write_text(text.replace(right, wrong))
    monkeypatch.setattr(bundle, "default_root", lambda: root)
    with pytest.raises(AssertionError):
        for seed in range(20):
            check("dense", seed)
