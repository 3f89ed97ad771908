"""Check compaction against a model: the newest record of each key keeps its offset, others go."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.log.cleaner import READ_ENTRIES, LogCleaner
from korvet.log.compacted_copy import COPY_ENTRIES, INDEX_BYTES, MAX_ROWS, CleanedIndex, Outcome
from korvet.log.layouts import records_in
from korvet.log.read_result import ReadRequest
from korvet.log.reader import LogReader
from korvet.log.tables import fill
from korvet.scripts.calls.partition import CleanBeginReply, ListOffsetsReply
from korvet.scripts.keys import Keys
from korvet.store.errors import StoreRefused
from korvet.testing import LuaRunner
from korvet.topics.table import Definition, Topic, encode_definition, read_topic
from korvet.wire import batch_builder, control_records, record_entries
from korvet.wire.records import Record
from tests.selection import seeds
from tests.support.store_runners import Runner

KEYS = Keys()
LAYOUTS = [(form, mode) for form in ("record", "batch") for mode in ("time", "dense")]


class Store:
    """A LuaRunner with the store's interface; `between` runs after each call."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.between: Callable[[], None] = lambda: None

    def submit_command(self, *command: Any) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(self.runner.command(*command))
        return future

    async def run(self, call: Any) -> Any:
        reply = self.runner.run(call)
        self.between()
        return reply


class Log:
    """A partition of a compacted topic, the records written to it, and the records read from it."""

    def __init__(self, form: str, mode: str, runner: Any = None, **configs: str) -> None:
        self.runner = runner or LuaRunner()
        self.store = Store(self.runner)
        defaults = TopicConfigs(Settings({}))
        named = {name.replace("_", "."): value for name, value in configs.items()}
        asked = {"storage.format": form, "offset.mode": mode, "cleanup.policy": "compact"}
        definition = Definition("0" * 32, 1, defaults.pinned("t", {**asked, **named}))
        found = read_topic(KEYS, "t", encode_definition(definition), defaults)
        assert found is not None
        self.topic: Topic = found
        self.runner.run(
            KEYS.topic_create(
                KEYS.logs("t", range(1)),
                topic="t",
                definition=found.raw,
                topic_id=found.id,
                format=form,
                mode=mode,
                bits=10,
            )
        )
        self.written: dict[int, Record] = {}
        self.sequences: dict[int, int] = {}

    def append(
        self,
        rows: list[tuple[bytes, bytes | None]],
        producer: int = -1,
        number: int = -1,
        *,
        timed: bool = True,
    ) -> list[int]:
        """Append these keys and values as one batch; return their offsets."""
        now = self.runner.now_ms() if timed else -1
        found: list[Record] = [(n, now, key, value, []) for n, (key, value) in enumerate(rows)]
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        who = (producer, 0 if producer >= 0 else -1, sequence)
        fields: list[Any]
        if self.topic.is_batch:
            batch = bytes(batch_builder.build(found, producer=who, transactional=number >= 0))
            fields = [b"batch", batch, b"count", len(rows), b"max.timestamp", now]
        else:
            mark = producer if number >= 0 else None
            fields = record_entries.fields_of(found, producer_id=mark)
        reply = self.runner.run(
            KEYS.partition("t", 0, self.topic.id).append(
                count=len(rows),
                size=100 * len(rows),
                max_timestamp=now,
                producer_id=who[0],
                producer_epoch=who[1],
                base_sequence=who[2],
                transaction=number,
                fields=fields,
            )
        )
        assert reply.error == 0
        self.sequences[producer] = self.sequences.get(producer, 0) + len(rows)
        offsets = [reply.base + n for n in range(len(rows))]
        self.written.update(
            (offset, (offset, now, key, value, []))
            for offset, (key, value) in zip(offsets, rows, strict=True)
        )
        return offsets

    def mark(self, producer: int, number: int, committed: bool) -> None:
        """Write the marker that ends the producer's transaction."""
        now = self.runner.now_ms()
        if self.topic.is_batch:
            batch = bytes(control_records.control_batch(0, now, producer, 0, committed))
            fields = [b"batch", batch, b"count", b"1", b"max.timestamp", b"%d" % now]
        else:
            fields = control_records.fields_of(now, producer, 0, committed)
        self.runner.run(
            KEYS.partition("t", 0, self.topic.id).write_txn_marker(
                producer_id=producer,
                producer_epoch=0,
                transaction=number,
                committed=int(committed),
                size=100,
                fields=fields,
            )
        )

    async def compact(self) -> Any:
        """Run one pass and return its result."""
        return await LogCleaner(self.store, self.topic, 0, _no_rest).run()

    async def read(self, *, committed: bool = True) -> list[Record]:
        """Read all records from the start to the end."""
        reader, at, rows = LogReader(self.store), self.bounds().start, []
        while True:
            found = await reader.read(ReadRequest(self.topic, 0, at, 2000, committed=committed))
            assert not found.error
            if not found.entries:
                return rows
            rows += records_in(self.topic, found.entries, found.aborted)
            at = found.entries[-1].last + 1

    def bounds(self) -> ListOffsetsReply:
        """Return the start and the end of the log."""
        return self.runner.run(KEYS.partition("t", 0, self.topic.id).list_offsets())


def newest(rows: list[Record]) -> list[Record]:
    """Return the newest record of every key, by offset."""
    return sorted({key: row for row in rows for key in [row[2]]}.values())


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
async def test_the_newest_record_of_a_key_stays_at_its_offset(form: str, mode: str) -> None:
    one = Log(form, mode)
    for turn in range(30):
        one.append([(b"k%d" % (n % 7), b"v%d.%d" % (turn, n)) for n in range(turn % 5 + 1)])
    before = await one.read()
    end = one.bounds().next
    outcome = await one.compact()
    assert outcome.removed > 0
    after = await one.read()
    last = before[-1]
    assert newest(after) == newest(before)
    # The last batch stays whole, so that readers reach the end.
    assert len(after) <= len(newest(before)) + 4
    assert after[-1] == last
    assert one.bounds().next == end
    assert await one.compact() is None


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
async def test_tombstones_are_removed_after_delete_retention(form: str, mode: str) -> None:
    one = Log(form, mode, delete_retention_ms="1000")
    one.append([(b"a", b"1"), (b"b", b"1")])
    one.append([(b"a", None)])
    one.append([(b"c", b"1")])
    await one.compact()
    assert [row[2:4] for row in await one.read()] == [(b"b", b"1"), (b"a", None), (b"c", b"1")]
    one.runner.advance(999)
    assert await one.compact() is None
    one.runner.advance(1)
    await one.compact()
    assert [row[2:4] for row in await one.read()] == [(b"b", b"1"), (b"c", b"1")]
    one.runner.advance(5000)
    assert await one.compact() is None


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
async def test_a_log_that_ends_with_a_tombstone_is_left_in_peace(form: str, mode: str) -> None:
    one = Log(form, mode, delete_retention_ms="1000")
    one.append([(b"a", b"1"), (b"b", b"1")])
    one.append([(b"a", None)])
    await one.compact()
    one.runner.advance(1000)
    await one.compact()
    for _ in range(3):
        one.runner.advance(5000)
        assert await one.compact() is None
    assert [row[2:4] for row in await one.read()] == [(b"b", b"1"), (b"a", None)]
    for _ in range(9):
        one.append([(b"c", b"1")])
    await one.compact()
    one.runner.advance(1000)
    await one.compact()
    assert [row[2:4] for row in await one.read()] == [(b"b", b"1"), (b"c", b"1")]
    one.runner.advance(5000)
    assert await one.compact() is None


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
async def test_aborted_records_and_markers_go_and_open_ones_are_left(form: str, mode: str) -> None:
    one = Log(form, mode)
    one.append([(b"a", b"plain")])
    one.append([(b"a", b"aborted")], producer=1, number=1)
    one.mark(1, 1, False)
    one.append([(b"b", b"committed")], producer=1, number=2)
    one.mark(1, 2, True)
    one.append([(b"x", b"1")] * 700)
    one.append([(b"a", b"open"), (b"b", b"open")], producer=2, number=1)
    one.append([(b"x", b"2")])
    await one.compact()
    seen = {row[2]: row[3] for row in await one.read()}
    assert (seen[b"a"], seen[b"b"]) == (b"plain", b"committed")
    one.mark(2, 1, True)
    one.append([(b"x", b"3")] * 2000)
    await one.compact()
    seen = {row[2]: row[3] for row in await one.read()}
    assert seen == {b"a": b"open", b"b": b"open", b"x": b"3"}


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
@pytest.mark.parametrize("seed", seeds(range(3), quick=1))
async def test_writers_and_readers_are_served_while_a_log_is_compacted(
    form: str, mode: str, seed: int
) -> None:
    random, one = Random(seed), Log(form, mode)

    def write() -> None:
        if random.random() < 0.7:
            one.runner.advance(random.randrange(3))
            count = random.randrange(1, 6)
            one.append([(b"%d" % random.randrange(20), b"%d" % n) for n in range(count)])

    for _ in range(40):
        write()
    one.store.between = write
    passes = 0
    for _ in range(5):
        passes += await one.compact() is not None
        for _ in range(30):
            write()
    assert passes >= 2
    one.store.between = lambda: None
    expected = newest(list(one.written.values()))
    found = await one.read()
    assert newest(found) == expected
    assert all(one.written[row[0]] == row for row in found)
    await one.compact()
    assert newest(await one.read()) == expected


async def test_an_interrupted_pass_has_changed_nothing() -> None:
    one = Log("record", "dense")
    one.append([(b"k", b"%d" % n) for n in range(50)])
    before = await one.read()

    class Died(Exception):
        """The broker is gone."""

    calls = iter(range(100))

    def die() -> None:
        if next(calls) == 1:
            raise Died

    one.store.between = die
    with pytest.raises(Died):
        await one.compact()
    one.store.between = lambda: None
    assert await one.read() == before
    await one.compact()
    assert newest(await one.read()) == newest(before)
    assert one.runner.command("EXISTS", KEYS.partition("t", 0).compacted) == 0


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("form", ["record", "batch"])
async def test_what_stood_twice_in_the_last_batch_goes_when_others_come(
    form: str, mode: str
) -> None:
    one = Log(form, mode)
    one.append([(b"%d" % (n % 3), b"%d" % n) for n in range(9)])
    await one.compact()
    for key in (b"x", b"y"):
        one.append([(key, b"1")])
        await one.compact()
    assert [value for _, _, _, value, _ in await one.read()] == [b"6", b"7", b"8", b"1", b"1"]


async def test_young_records_are_left_alone() -> None:
    one = Log("record", "time", min_compaction_lag_ms="1000")
    one.append([(b"k", b"1"), (b"k", b"2")])
    assert await one.compact() is None
    one.runner.advance(1000)
    assert (await one.compact()).removed == 1


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_records_without_a_timestamp_are_young_for_as_long(form: str) -> None:
    one = Log(form, "dense", min_compaction_lag_ms="1000")
    for value in (b"1", b"2"):
        one.append([(b"k", value)], timed=False)
    assert await one.compact() is None
    one.runner.advance(1000)
    assert (await one.compact()).removed == 1


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_retention_waits_for_compacted_records_without_a_timestamp(form: str) -> None:
    one = Log(form, "dense", cleanup_policy="compact,delete")
    rows: list[tuple[bytes, bytes | None]] = [(b"%d" % n, b"v" * 2000) for n in range(100)]
    for _ in range(2):
        one.append(rows, timed=False)
    one.append(rows[:1])
    await one.compact()
    assert len(one.runner.command("ZRANGE", KEYS.partition("t", 0).index, "0", "-1")) > 1
    before = await one.read()

    def retain() -> int:
        return one.runner.run(
            KEYS.partition("t", 0, one.topic.id).apply_retention(
                retention_ms=1000, retention_bytes=-1, steps=64
            )
        ).removed

    one.runner.advance(1000)
    assert retain() == 0
    assert await one.read() == before
    one.runner.advance(1)
    assert retain() > 0


async def test_a_batch_that_cannot_be_read_stays_and_stops_nothing() -> None:
    """Layout batch stores a producer's bytes unchanged, also if the body is malformed."""
    one = Log("batch", "dense")
    one.append([(b"k", b"1")])
    garbled = bytearray(batch_builder.build([(0, one.runner.now_ms(), b"k", b"2", [("h", b"x")])]))
    garbled[garbled.index(b"h")] = 0xFF
    one.runner.run(
        KEYS.partition("t", 0, one.topic.id).append(
            count=1, size=100, max_timestamp=one.runner.now_ms(), fields=[bytes(garbled)]
        )
    )
    one.append([(b"k", b"3")])
    one.append([(b"last", b"")])
    assert (await one.compact()).removed == 1
    rows: Any = one.runner.command("XRANGE", KEYS.partition("t", 0).stream, "-", "+")
    assert len(rows) == 3
    assert bytes(garbled) in rows[0][1]


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("mode", ["time", "dense"])
async def test_a_key_deleted_in_the_last_batch_of_a_pass_stays_deleted(
    form: str, mode: str
) -> None:
    """The batch stays whole. A tombstone that expired meanwhile let the deleted record return."""
    one = Log(form, mode, min_compaction_lag_ms="1000", delete_retention_ms="5000")
    one.append([(b"%d" % n, b"1") for n in range(700)] + [(b"a", b"1"), (b"a", None)])
    one.runner.advance(500)
    one.append([(b"b", b"1")])
    one.runner.advance(600)
    assert await one.compact() is not None
    one.runner.advance(400)
    one.append([(b"c", b"%d" % n) for n in range(700)])
    for _ in range(3):
        one.runner.advance(5000)
        await one.compact()
        one.append([(b"d", b"1")])
    assert b"1" not in {value for _, _, key, value, _ in await one.read() if key == b"a"}


def test_the_index_of_a_large_copy_has_few_rows_that_are_further_apart() -> None:
    index, outcome, entries = CleanedIndex(), Outcome(), 5 * MAX_ROWS
    for n in range(entries):
        index.note(outcome, n, 1000 + n, INDEX_BYTES, 1)
    plan = CleanBeginReply(0, 1, 0, 0, entries, 2**50, 2**50, 0, 2**50)
    rows = [[int(word) for word in row.split(":")] for row in index.rows(0, 0, plan)]
    assert MAX_ROWS // 2 <= len(rows) <= MAX_ROWS
    assert rows == [[n, 999 + n if n else -1, n * INDEX_BYTES, n] for n, *_ in rows]
    assert all(0 < two[0] - one[0] <= 16 for one, two in pairwise(rows))


@pytest.mark.parametrize("mode", ["time", "dense"])
async def test_the_index_never_falls_where_foreign_entries_were_compacted(mode: str) -> None:
    """They exceed the log's record count: the lag of a group was negative."""
    one = Log("record", mode)
    stream, index = KEYS.partition("t", 0).stream, KEYS.partition("t", 0).index
    for n in range(300):
        one.runner.advance(1)
        at = f"{one.runner.now_ms()}-0" if mode == "time" else "*"
        one.runner.command("XADD", stream, at, "key", f"{n}", "value", "x" * 500)
    one.append([(b"a", b"1")])
    assert await one.compact() is not None
    for _ in range(3):
        one.append([(b"b", b"1")] * 700)
    rows = one.runner.command("ZRANGE", index, 0, -1)
    found = [tuple(map(int, row.split(b":"))) for row in rows]
    assert len(found) >= 5
    for column in range(4):
        assert [row[column] for row in found] == sorted(row[column] for row in found)
    for at in (row[0] for row in found):
        lag = one.runner.run(KEYS.partition("t", 0, one.topic.id).lag(offset=at)).records
        assert 0 < lag <= 2401


@pytest.mark.parametrize("emptied", [False, True])
async def test_a_pass_that_ends_early_holds_no_memory(emptied: bool) -> None:
    """A full Redis refuses calls, also of producers, while the compacted copy uses the memory."""
    one = Log("record", "dense")
    one.append([(b"%d" % n, b"1") for n in range(3 * COPY_ENTRIES)])
    before, calls, twin = await one.read(), iter(range(100)), KEYS.partition("t", 0).compacted

    class Died(Exception):
        """The broker is gone."""

    def refuse() -> None:
        if next(calls) == 2:
            assert one.runner.command("XLEN", twin)
            raise Died if emptied else StoreRefused("OOM command not allowed")

    one.store.between = refuse
    with pytest.raises(Died if emptied else StoreRefused):
        await one.compact()
    one.store.between = lambda: None
    if emptied:
        one.runner.run(KEYS.partition("t", 0, one.topic.id).delete_records(before=-1))
        assert await one.compact() is None
    else:
        assert await one.read() == before
    assert one.runner.command("EXISTS", twin) == 0


async def test_entries_that_have_no_offset_end_no_pass() -> None:
    """The cleaner took a page of such entries for the end, and later records were lost."""
    one = Log("record", "time")
    one.append([(b"a", b"1")])
    one.runner.advance(1)
    stream = KEYS.partition("t", 0).stream
    for n in range(READ_ENTRIES + 10):
        one.runner.command("XADD", stream, f"{one.runner.now_ms()}000000-{n}", "key", "n")
    one.runner.advance(1)
    one.append([(b"b", b"1"), (b"c", b"1")])
    one.append([(b"c", b"2")])
    await one.compact()
    assert [row[2:4] for row in await one.read()] == [(b"a", b"1"), (b"b", b"1"), (b"c", b"2")]


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("wide", [(3,), (8,), (0, 1, 5, 8)])
async def test_a_foreign_entry_of_4100_headers_is_compacted(
    mode: str, wide: tuple[int, ...]
) -> None:
    """The fields exceed Lua's stack: this pass and all later ones failed."""
    one = Log("record", mode)
    stream = KEYS.partition("t", 0).stream

    def native(n: int) -> None:
        one.runner.advance(1)
        more = [word for h in range(4100) for word in (f"header.h{h}", "x")] if n in wide else []
        at = f"{one.runner.now_ms()}-0" if mode == "time" else "*"
        one.runner.command("XADD", stream, at, "key", f"{n % 4}", "value", f"{n}", *more)

    for n in range(6):
        native(n)
    one.append([(b"a", b"1"), (b"a", b"2")])
    appended: list[int] = []

    def behind() -> None:
        """Append more foreign entries during the pass."""
        if not appended:
            appended.append(1)
            for n in range(6, 10):
                native(n)

    one.store.between = behind
    assert await one.compact() is not None
    found = [(key, value, len(headers)) for _, _, key, value, headers in await one.read()]
    kept = [2, 3, 4, 5]
    many = {n: 4100 if n in wide else 0 for n in range(10)}
    assert found == [
        *((b"%d" % (n % 4), b"%d" % n, many[n]) for n in kept),
        (b"a", b"2", 0),
        *((b"%d" % (n % 4), b"%d" % n, many[n]) for n in range(6, 10)),
    ]
    assert one.runner.command("EXISTS", KEYS.partition("t", 0).compacted) == 0


async def test_a_trim_in_the_middle_of_a_pass_ends_it() -> None:
    one = Log("record", "dense")
    one.append([(b"k", b"%d" % n) for n in range(50)])

    def trim() -> None:
        one.store.between = lambda: None
        one.runner.run(KEYS.partition("t", 0, one.topic.id).delete_records(before=45))

    one.store.between = trim
    assert await one.compact() is None
    assert [row[0] for row in await one.read()] == list(range(45, 50))


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_a_pass_whose_compacted_copy_lost_entries_changes_nothing(form: str) -> None:
    """Redis replied to a call, and the replica that is promoted lacks its effect."""
    one = Log(form, "dense")
    for n in range(2 * COPY_ENTRIES):
        one.append([(b"%d" % n, b"1"), (b"twice", b"2")][: 1 + (n % 70 == 0)])
    before, twin = await one.read(), KEYS.partition("t", 0).compacted
    held: list[Any] = []
    calls = lost = 0

    def forget() -> None:
        nonlocal calls, lost, held
        calls -= 1
        found = one.runner.command("XRANGE", twin, "-", "+")
        if calls == 0 and len(found) > len(held):
            lost += 1
            one.runner.command("DEL", twin)
            for at, fields in held:
                one.runner.command("XADD", twin, at, *fields)
        held = found

    one.store.between = forget
    for turn in range(2, 100):
        calls, held = turn, []
        if await one.compact() is not None:
            break
        assert await one.read() == before
    assert lost == turn - 2 >= 2
    assert newest(await one.read()) == newest(before)


async def test_redis_groups_keep_their_position_over_a_compaction() -> None:
    one = Log("record", "dense")
    one.append([(b"k", b"%d" % n) for n in range(50)])
    stream = KEYS.partition("t", 0).stream
    one.runner.command("XGROUP", "CREATE", stream, "native", "9223372036854775807-20")
    await one.compact()
    rows = one.runner.command("XREADGROUP", "GROUP", "native", "me", "STREAMS", stream, ">")
    found = next(iter(rows.values())) if isinstance(rows, dict) else rows[0][1]
    found = found[0] if isinstance(found[0][0], list | tuple) else found
    assert [row[0] for row in found] == [b"9223372036854775807-49"]


class Timed(Store):
    """A store whose every reply takes 2 ms, and that records the calls."""

    def __init__(self, runner: LuaRunner) -> None:
        super().__init__(runner)
        self.now = self.busy = 0.0
        self.counts: list[int] = []
        self.calls: list[Any] = []

    def clock(self) -> float:
        return self.now

    def _work(self) -> None:
        self.now += 0.002
        self.busy += 0.002

    def submit_command(self, *command: Any) -> "asyncio.Future[Any]":
        if command[0] == "XRANGE":
            self.counts.append(command[-1])
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def answer() -> None:
            self._work()
            future.set_result(self.runner.command(*command))

        loop.call_soon(answer)
        return future

    async def run(self, call: Any) -> Any:
        self.calls.append(call)
        self._work()
        return await super().run(call)


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
async def test_redis_is_held_shortly_and_left_alone_for_nine_times_as_long(
    form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Log(form, mode)
    for turn in range(12):
        one.append([(b"%d" % (n + 50 * turn), b"v" * 20) for n in range(200)])
    store = Timed(one.runner)
    rested: list[float] = []

    async def rest(seconds: float) -> None:
        rested.append(seconds)

    monkeypatch.setattr("korvet.log.compacted_copy.monotonic", store.clock)
    outcome = await LogCleaner(store, one.topic, 0, rest).run()
    assert outcome is not None and outcome.removed > 0
    assert sum(rested) >= 8.99 * store.busy
    assert max(rested) < 0.1
    assert max(store.counts) <= READ_ENTRIES
    carried = [call for call in store.calls if call.script.name == "log.clean_copy"]
    if form == "record":
        assert len(carried) >= outcome.kept / COPY_ENTRIES


async def test_long_keys_are_distinguished_and_take_little_memory() -> None:
    one = Log("record", "dense")
    long = [b"k" * 5000 + b"%d" % n for n in range(3)]
    for turn in range(4):
        one.append([(key, b"%d" % turn) for key in long])
    one.append([(b"end", b"")])
    pass_ = LogCleaner(one.store, one.topic, 0, _no_rest)
    await pass_.run()
    assert [row[2:4] for row in await one.read()] == [
        *((key, b"3") for key in long),
        (b"end", b""),
    ]
    assert max(len(key) for key in pass_._newest) < 40


async def test_large_entries_behind_the_limit_are_carried_a_few_at_a_time() -> None:
    one = Log("batch", "dense")
    one.append([(b"k", b"1")])
    one.append([(b"k", b"2")])

    def write() -> None:
        # The swap has to carry records that arrive during the pass.
        one.store.between = lambda: None
        for n in range(6):
            one.append([(b"%d" % n, b"v" * 100)] * 1000)

    one.store.between = write
    swaps: list[Any] = []
    run = one.store.run

    async def noted(call: Any) -> Any:
        swaps.extend([call] if call.script.name == "log.clean_commit" else [])
        return await run(call)

    one.store.run = noted  # type: ignore[method-assign]
    await one.compact()
    assert len(swaps) >= 3
    assert len(await one.read()) == 6001


async def _no_rest(seconds: float) -> None:
    """Return without a pause: the cleaner need not throttle itself."""


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("seed", seeds(range(4), quick=1))
async def test_a_table_is_that_of_the_compacted_log(mode: str, seed: int) -> None:
    rng, log = Random(seed), Log("record", mode, delete_retention_ms="0")
    partition = log.topic.partition(0)

    async def table(action: str = "on") -> dict[bytes, bytes]:
        log.runner.run(partition.set_table(action=action))
        await fill(log.store, partition)
        flat = log.runner.command("HGETALL", partition.table)
        return dict(zip(flat[::2], flat[1::2], strict=True))

    for number in range(1, 20):
        keys = [b"k%d" % rng.randrange(5) for _ in range(3)]
        producer = rng.choice([-1, 1, 2])
        log.append(
            [(key, rng.choice([None, b"%d" % number])) for key in keys],
            producer,
            number if producer >= 0 else -1,
        )
        if producer >= 0:
            if rng.random() < 0.3:
                await table()
            log.mark(producer, number, committed=rng.random() < 0.7)
        if rng.random() < 0.3:
            before = await table()
            log.runner.advance(10)
            await log.compact()
            assert await table() == before
    newest = {row[2]: row[3] for row in await log.read() if row[2] is not None}
    assert await table() == {key: value for key, value in newest.items() if value is not None}
    assert await table() == await table("rebuild")
