"""Check the offsets of entries that other programs added, against a simple model."""

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from korvet.base.errors import ErrorCode
from korvet.log.entry import DENSE_MS, LAST, NATURAL_END, OffsetMap, split_id
from korvet.scripts.calls.partition import NumberEntriesReply
from korvet.store.errors import ScriptFailed
from korvet.testing import LuaRunner, ScriptError
from korvet.wire import control_records
from tests.lua.partition import ID, KEYS, Part
from tests.selection import seeds
from tests.support.store_runners import Runner

DAY = 86_400_000
TOP = 2**64 - 1
FAILED = (ScriptError, ScriptFailed)


@dataclass
class Model:
    """The offset that each id had when it was first numbered: it never changes."""

    part: Part
    known: dict[tuple[int, int], int] = field(default_factory=dict)
    own: list[int] = field(default_factory=list)

    def number(self) -> NumberEntriesReply:
        """Number the entries, in as many calls as it takes."""
        more = 1
        while more:
            reply = self.part.runner.run(KEYS.partition("t", 0, ID).number_entries())
            more = reply.more
        return reply

    def places(self) -> OffsetMap:
        """Return the log's map."""
        part = self.part
        return OffsetMap(part.mode, part.bits, part.state().get("shifts", "").encode())

    def check(self) -> list[int | None]:
        """Return the offset of each entry, after a look at all rules."""
        end, places = self.number().next, self.places()
        ids = [split_id(each.encode()) for each in self.part.ids()]
        offsets = [places.offset(*each) for each in ids]
        found = [each for each in offsets if each is not None]
        assert found == sorted(set(found))
        assert all(each < end <= LAST for each in found)
        for place, offset in zip(ids, offsets, strict=True):
            assert self.known.get(place, offset) == offset
            if offset is not None:
                self.known[place] = offset
                assert split_id(places.id(offset).encode()) == place
        some = Random(len(found)).sample(found, min(len(found), 5))
        for offset in [0, end, *some, *(each + 1 for each in some)]:
            start = places.start(offset)
            low = split_id(start.removeprefix("(").encode())
            is_open = start.startswith("(")
            kept = [
                at
                for at, each in zip(offsets, ids, strict=True)
                if at is not None and (each > low if is_open else each >= low)
            ]
            assert kept == [each for each in found if each >= offset]
        start = int(self.part.state()["start"])
        assert {each for each in self.own if each >= start} <= set(found)
        return offsets

    def append(self, count: int) -> None:
        """Append as a producer does."""
        reply = self.part.append(count)
        assert (reply.error, reply.stored) == (0, 1)
        assert not self.own or reply.base > self.own[-1]
        first = reply.base + count - 1 if self.part.form == "batch" else reply.base
        self.own += range(first, reply.base + count)


def burst(part: Part, ms: int, count: int, first: int = 0) -> None:
    """Add entries of one millisecond, as a script of another program does."""
    for n in range(count):
        part.runner.command("XADD", part.keys.stream, f"{ms}-{first + n}", "value", "x")


@pytest.mark.parametrize("count", [256, 257, 700])
def test_a_millisecond_has_any_number_of_entries(runner: Runner, count: int) -> None:
    part = Part(runner, bits=8).create()
    model, now = Model(part), runner.now_ms()
    burst(part, now, count)
    assert model.check() == [(now << 8) + n for n in range(count)]
    burst(part, now + 1, 3)
    last = max((now << 8) + count, (now + 1) << 8)
    assert model.check()[count:] == [last, last + 1, last + 2]


def test_a_producer_continues_above_a_millisecond_that_overflows(runner: Runner) -> None:
    part = Part(runner, bits=8).create()
    model, now = Model(part), runner.now_ms()
    burst(part, now, 700)
    model.append(3)
    last, _ = split_id(part.ids()[-1].encode())
    burst(part, last + 1, 5, first=9)
    model.append(300)
    offsets = model.check()
    assert None not in offsets
    assert len(offsets) == 700 + 3 + 5 + 300


def test_entries_after_a_batch_that_filled_its_millisecond_are_numbered(runner: Runner) -> None:
    part = Part(runner, bits=8).create()
    model = Model(part)
    for _ in range(5):
        model.append(256)
        part.native()
        model.append(1)
    assert len([each for each in model.check() if each is not None]) == 5 * 258


@pytest.mark.parametrize("ahead", [1, DAY])
def test_entries_ahead_of_the_clock_hide_none(runner: Runner, ahead: int) -> None:
    part = Part(runner, bits=8).create()
    model, now = Model(part), runner.now_ms()
    burst(part, now + ahead, 1)
    for _ in range(300):
        part.native()
    assert None not in model.check()
    model.append(2)
    part.native()
    assert len(model.check()) == 304


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize(
    "far",
    [
        (2**43, 0),
        (2**43 - 2, 0),
        (2**43 - 2**38 - 2, 0),
        (10**15, 7),
        (1_795_729_466_753_000, 0),
        (1_795_729_466_753_000_000, 0),
        (DENSE_MS, 2**53),
        (DENSE_MS, 2**60),
        (DENSE_MS + 1, 0),
        (TOP - 1, 2**64 - 1),
        (TOP, 0),
        (TOP, 5),
        (TOP, 8 * 10**15 + 1),
    ],
)
@pytest.mark.parametrize("gone", [False, True])
def test_appends_go_past_an_id_without_an_offset(
    runner: Runner, mode: str, form: str, far: tuple[int, int], gone: bool
) -> None:
    part = Part(runner, form, mode).create()
    model = Model(part)
    model.append(2)
    place = "-".join(map(str, far))
    try:
        runner.command("XADD", part.keys.stream, place, "value", "far")
    except Exception:  # Redis refuses ids below the dense ones
        assert mode == "dense" and far[0] < DENSE_MS
        return
    if gone:
        runner.command("XDEL", part.keys.stream, place)
    model.append(3)
    part.native()
    model.append(1)
    bounds = part.bounds()
    assert 0 <= bounds.start <= bounds.first < bounds.next <= LAST
    offsets = model.check()
    has_offset = far in model.known
    assert len([each for each in offsets if each is not None]) >= (6 if form == "record" else 3)
    unnumbered = int(part.state().get("unnumbered", "0"))
    assert unnumbered == (not gone and form == "record" and not has_offset)
    check_drop(model, offsets)


@pytest.mark.parametrize("is_marker", [False, True])
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(
    ("mode", "places"),
    [
        ("time", [(NATURAL_END // 1024 - 1, 1023), (TOP, 3 * 10**14), (TOP, 6 * 10**14)]),
        ("time", [(2**60, 0), (TOP, 8 * 10**15), (TOP, 86 * 10**14)]),
        ("dense", [(DENSE_MS, NATURAL_END - 1), (TOP, 3 * 10**14), (TOP, 8 * 10**15)]),
        ("dense", [(TOP, 5), (TOP, NATURAL_END - 2**40)]),
    ],
)
def test_gaps_between_far_ids_leave_offsets_for_appends(
    runner: Runner, mode: str, places: list[tuple[int, int]], gone: bool, is_marker: bool
) -> None:
    part = Part(runner, mode=mode).create()
    model, producer = Model(part), {"producer_id": 1, "producer_epoch": 0}
    model.append(2)
    for number, (ms, sequence) in enumerate(places, 1):
        place = f"{ms}-{sequence}"
        if is_marker:
            part.append(base_sequence=number - 1, transaction=number, **producer)
        runner.command("XADD", part.keys.stream, place, "value", "far")
        if gone:
            runner.command("XDEL", part.keys.stream, place)
        if is_marker:
            fields = control_records.fields_of(runner.now_ms(), 1, 0, True)
            call = KEYS.partition("t", 0, ID).write_txn_marker(
                committed=1, size=10, fields=fields, transaction=number, **producer
            )
            model.own.append(runner.run(call).offset)
        model.append(3)
        part.native()
        model.append(1)
        offsets = model.check()
    assert offsets.count(None) == (not gone and (2**60, 0) in places)


def check_drop(model: Model, offsets: list[int | None]) -> None:
    """Delete the entries without an offset, and look at those that stay."""
    part, kept = model.part, [each for each in offsets if each is not None]
    lost = len(offsets) - len(kept)
    for delete, expected in ((0, lost), (1, lost), (1, 0)):
        reply = part.runner.run(
            KEYS.partition("t", 0, ID).drop_unnumbered(after=b"", delete=delete)
        )
        assert (reply.error, reply.entries, reply.last) == (0, expected, b"")
        assert (reply.size > 0) == (expected > 0)
    assert model.check() == kept
    part.native()
    model.append(2)
    assert None not in model.check()


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("sequence", [NATURAL_END, 2**53 + 1, 2**63, 2**64 - 2, 2**64 - 1])
@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("mode", ["time", "dense"])
def test_a_log_without_ids_refuses_appends_until_it_is_rebuilt(
    runner: Runner, mode: str, form: str, sequence: int, gone: bool
) -> None:
    """The entry was read at an offset that later appends had too, or stopped all readers."""
    part = Part(runner, form, mode).create()
    model = Model(part)
    model.append(2)
    if sequence == 2**63:  # ids of the log are at TOP, and have offsets
        runner.command("XADD", part.keys.stream, f"{TOP}-5", "value", "far")
        model.append(2)
    kept = [each for each in model.check() if each is not None]
    runner.command("XGROUP", "CREATE", part.keys.stream, "group", f"{TOP}-{sequence}")
    runner.command("XADD", part.keys.stream, f"{TOP}-{sequence}", "value", "last")
    if gone:
        runner.command("XDEL", part.keys.stream, f"{TOP}-{sequence}")
    for _ in range(2):
        with pytest.raises(FAILED, match="exhausted"):
            part.append()
        assert [each for each in model.check() if each is not None] == kept
    drop = KEYS.partition("t", 0, ID).drop_unnumbered(after=b"", delete=1)
    reply = runner.run(drop)
    assert (reply.entries >= (not gone), reply.last, reply.spent) == (True, b"", 1)
    rebuild(part)
    assert runner.run(drop).spent == 0
    assert model.check() == kept
    model.append(2)
    part.native()
    model.append(1)
    assert len(model.check()) == len(kept) + (4 if form == "record" else 3)
    assert part.adopt() == 1
    state = part.state()
    assert (state["entries"], state["next"]) == (str(len(part.ids())), str(part.bounds().next))
    left = runner.command("XREADGROUP", "GROUP", "group", "c", "STREAMS", part.keys.stream, ">")
    assert len(left[0][1]) == (4 if form == "record" else 3)


def rebuild(part: Part, at_most: int = 500) -> int:
    """Rebuild the log in as many calls as it takes; return how many."""
    length, more, calls = 0, 1, 0
    while more:
        call = KEYS.partition("t", 0, ID).rebuild(token="me", length=length, at_most=at_most)
        reply = part.runner.run(call)
        assert (reply.error, reply.oversized_id) == (0, b"")
        length, more, calls = reply.length, reply.more, calls + 1
    return calls


def test_a_rebuild_copies_in_several_calls_and_ends_if_the_log_changes(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    part.append(25)
    assert rebuild(part) == 1  # there is nothing to do
    runner.command("XADD", part.keys.stream, f"{TOP}-{TOP}", "value", "last")
    with pytest.raises(FAILED, match="exhausted"):
        part.append()
    start = KEYS.partition("t", 0, ID).rebuild(token="me", length=0, at_most=10)
    assert runner.run(start).length == 10
    last = KEYS.partition("t", 0, ID).rebuild(token="me", length=10, at_most=50)
    assert runner.run(last).error == ErrorCode.NOT_COORDINATOR  # an entry has no offset
    runner.run(KEYS.partition("t", 0, ID).drop_unnumbered(after=b"", delete=1))
    assert runner.run(start).length == 10
    other = KEYS.partition("t", 0, ID).rebuild(token="other", length=10, at_most=50)
    assert runner.run(other).error == ErrorCode.NOT_COORDINATOR
    runner.command("XDEL", part.keys.stream, f"{DENSE_MS}-3")
    assert runner.run(last).error == ErrorCode.NOT_COORDINATOR
    assert rebuild(part, at_most=10) == 3
    assert part.offsets() == [each for each in range(25) if each != 3]
    assert part.append().base == 25


def test_entries_without_an_offset_are_deleted_in_several_calls(runner: Runner) -> None:
    part = Part(runner).create()
    model = Model(part)
    model.append(2)
    burst(part, 2**43, 1500)
    model.append(2)
    call = KEYS.partition("t", 0, ID).drop_unnumbered(after=b"", delete=1)
    first = runner.run(call)
    assert (first.entries, first.last.decode()) == (1000, f"{2**43}-999")
    call = KEYS.partition("t", 0, ID).drop_unnumbered(after=first.last, delete=1)
    assert runner.run(call).entries == 500
    assert len(model.check()) == 4


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_an_entry_larger_than_one_call_reads_is_numbered(lua: LuaRunner, mode: str) -> None:
    """Its partition refused appends, and its pass of retention never ended."""
    part = Part(lua, mode=mode).create()
    for ms, size in enumerate((34_000_000, 6_000_000), 1_700_000_000_000):
        id_ = f"{ms}-0" if mode == "time" else "*"
        lua.command("XADD", part.keys.stream, id_, "value", b"v" * size)
    for more in (1, 0) if mode == "time" else (0, 0):
        assert lua.run(KEYS.partition("t", 0, ID).number_entries()).more == more
    lua.advance(1)
    part.native(b"value", b"v" * 6_000_000)
    end = part.bounds().next
    assert lua.run(KEYS.partition("t", 0, ID).lag(offset=0)).next == end
    assert part.append().error == 0
    assert part.adopt() < 5 and part.state()["largest_append"] == "34000005"


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_a_marker_counts_an_entry_without_an_offset_once(runner: Runner, mode: str) -> None:
    part = Part(runner, mode=mode).create()
    producer = {"producer_id": 1, "producer_epoch": 0, "transaction": 1}
    part.append(base_sequence=0, **producer)
    runner.command("XADD", part.keys.stream, f"{2**63}-1", "value", "far")
    fields = control_records.fields_of(runner.now_ms(), 1, 0, True)
    runner.run(
        KEYS.partition("t", 0, ID).write_txn_marker(committed=1, size=10, fields=fields, **producer)
    )
    assert part.state()["unnumbered"] == "1"


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("seed", seeds(range(12), quick=3))
def test_every_entry_keeps_its_one_offset(lua: LuaRunner, mode: str, seed: int) -> None:
    chance, runner = Random(seed), lua
    part = Part(runner, mode=mode, bits=8).create()
    model = Model(part)
    for _ in range(18):
        now, kind = runner.now_ms(), chance.randrange(9)
        if kind < 2:
            model.append(chance.choice([1, 3, 255, 256, 257, 600]))
        elif kind < 4:
            for _ in range(chance.choice([1, 2, 30, 300])):
                part.native()
        elif kind < 6 and mode == "time":
            place = now + chance.choice([0, 1, 2, 50, DAY, 2**43, 10**18])
            first = chance.choice([0, 1, 255, 256, 10**6])
            with suppress(Exception):  # Redis refuses an id that is not above the last one
                burst(part, place, chance.choice([1, 2, 300]), first)
        elif kind == 6:
            model.check()
        elif kind == 7:
            part.bounds()
        elif model.known and chance.random() < 0.3:
            part.truncate(chance.choice([*model.known.values()]))
        runner.advance(chance.choice([0, 0, 0, 1, 1, 2, 7]))
    model.check()
