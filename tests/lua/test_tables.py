"""Check lib.topic_table and log.fill_table: the table is the newest value of each key."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.append_call import append_many, batch_of
from korvet.scripts.calls.partition import FillTableReply
from korvet.testing import LuaRunner
from korvet.wire import control_records
from tests.lua import test_schedule as schedule
from tests.lua.partition import ID, KEYS, Part
from tests.selection import seeds
from tests.support.store_runners import Runner

Pair = tuple[bytes | None, bytes | None]


def with_table(runner: Runner, mode: str = "dense", table: int = 1) -> Part:
    """Create a partition that has a table, with offsets if `table` is 2."""
    return Part(runner, mode=mode, table=table).create()


def fields(*pairs: Pair, producer: int | None = None) -> list[Any]:
    """Return records that each name their fields; None leaves a field out."""
    rows: list[Any] = []
    for key, value in pairs:
        own: list[Any] = [] if producer is None else [b"transaction", b"%d" % producer]
        own += [] if key is None else [b"key", key]
        own += [] if value is None else [b"value", value]
        rows += (len(own) + 2, *own, b"timestamp", b"1000")
    return rows


def rows(*pairs: tuple[bytes, bytes]) -> list[Any]:
    """Return the same records with their names once."""
    flat = [word for key, value in pairs for word in (key, value, 1000)]
    return [-3, b"key", b"value", b"timestamp", *flat]


def columns(*pairs: tuple[bytes, bytes]) -> list[Any]:
    """Return the same records as columns."""
    words: list[Any] = [b"columns", 3]
    for name, values in (
        (b"key", [key for key, _ in pairs]),
        (b"value", [value for _, value in pairs]),
        (b"timestamp", [b"1000"] * len(pairs)),
    ):
        words += (name, -1, bytes(map(len, values)), b"".join(values))
    return words


def table_of(part: Part) -> dict[bytes, bytes]:
    """Return the table."""
    flat: Any = part.runner.command("HGETALL", part.keys.table)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def put(part: Part, *pairs: Pair, form: Any = fields, **changes: Any) -> int:
    """Append records; return the first offset."""
    reply = part.append(len(pairs), fields=form(*pairs), **changes)
    assert (reply.error, reply.stored) == (0, 1)
    return reply.base


def fill(part: Part, at_most: int = 2000) -> FillTableReply:
    """Fill the table to the end of what is decided; return the last reply."""
    more = 1
    while more:
        reply = part.runner.run(part.keys.fill_table((), at_most=at_most))
        assert reply.error == 0 and not reply.packed
        more = reply.more
    return reply


def newer(part: Part) -> object:
    """Return the keys of newer records."""
    return part.runner.command("ZRANGE", part.keys.table_newer, 0, -1)


@dataclass
class Producer:
    """A transactional producer."""

    part: Part
    id: int
    round: int = 1
    sequence: int = 0

    def put(self, *pairs: Pair) -> int:
        """Append records to its transaction."""
        reply = self.part.append(
            len(pairs),
            fields=fields(*pairs, producer=self.id),
            producer_id=self.id,
            producer_epoch=0,
            base_sequence=self.sequence,
            transaction=self.round,
        )
        assert (reply.error, reply.stored) == (0, 1)
        self.sequence += len(pairs)
        return reply.base

    def end(self, *, committed: bool) -> None:
        """End its transaction."""
        call = self.part.keys.write_txn_marker(
            producer_id=self.id,
            producer_epoch=0,
            transaction=self.round,
            committed=int(committed),
            size=10,
            fields=control_records.fields_of(1000, self.id, 0, committed),
        )
        assert self.part.runner.run(call).error == 0
        self.round += 1


@pytest.mark.parametrize("form", [fields, rows, columns])
@pytest.mark.parametrize("mode", ["time", "dense"])
def test_an_append_keeps_the_newest_value_of_each_key(runner: Runner, form: Any, mode: str) -> None:
    part = with_table(runner, mode)
    put(part, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), form=form)
    assert table_of(part) == {b"a": b"3", b"b": b"2"}
    put(part, (b"b", b""), (b"", b"no name"), form=form)
    assert table_of(part) == {b"a": b"3", b"b": b"", b"": b"no name"}
    assert part.state()["table"] == part.state()["next"]
    assert runner.command("EXISTS", part.keys.table_newer) == 0


def test_batches_of_one_call_are_added_in_turn(runner: Runner) -> None:
    part = with_table(runner)
    pairs = [(b"a", b"1"), (b"b", b"2")], [(b"b", b"3"), (b"c", b"4")], [(b"d", b"5"), (b"c", b"6")]
    made = [columns(*each) for each in pairs]
    made.insert(2, [b"columns", 2, b"key", 1, b"", b"ax", b"timestamp", 4, b"", b"10001000"])
    made.append(fields((b"d", None), (b"e", b"7")))
    batches = [batch_of(part.call(2, fields=each)) for each in made]
    assert not runner.run(append_many(KEYS, [("t", 0, ID, 0, batches)])).reason
    assert table_of(part) == {b"b": b"3", b"c": b"6", b"e": b"7"}
    stored: Any = runner.command("XRANGE", part.keys.stream, "-", "+")
    assert [row[1][1] for row in stored] == [
        b"a",
        b"b",
        b"b",
        b"c",
        b"a",
        b"x",
        *b"d c d e".split(),
    ]


def test_a_record_without_a_value_removes_its_key_and_one_without_a_key_changes_nothing(
    runner: Runner,
) -> None:
    part = with_table(runner)
    put(part, (b"a", b"1"), (b"b", b"2"), (b"c", None), (None, b"x"))
    put(part, (b"a", None), (b"b", None), (b"b", b"3"), (b"d", b"4"), (b"d", None))
    assert table_of(part) == {b"b": b"3"}
    put(part, (b"b", b"5"), form=lambda *_: [-2, b"key", b"timestamp", b"b", 1000])
    assert table_of(part) == {}
    put(part, (None, b"5"), form=lambda *_: [-2, b"value", b"timestamp", b"b", 1000])
    put(part, (None, b"5"), form=lambda *_: [b"columns", 1, b"value", 1, b"", b"b"])
    assert table_of(part) == {}
    assert part.state()["table"] == "12"


def test_a_log_without_a_table_gets_none(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    put(part, (b"a", b"1"))
    assert runner.command("EXISTS", part.keys.table) == 0
    assert fill(part).folded == -1


def test_records_of_a_transaction_are_added_once_it_is_committed(runner: Runner) -> None:
    part = with_table(runner)
    put(part, (b"a", b"old"), (b"b", b"old"))
    one, other = Producer(part, 1), Producer(part, 2)
    one.put((b"a", b"one"), (b"b", None))
    other.put((b"a", b"other"), (b"c", b"other"))
    assert fill(part).folded == 2
    put(part, (b"d", b"plain"))
    assert table_of(part) == {b"a": b"old", b"b": b"old", b"d": b"plain"}
    other.end(committed=False)
    fill(part)
    assert table_of(part) == {b"a": b"old", b"b": b"old", b"d": b"plain"}
    assert newer(part) == [b"d"]
    one.end(committed=True)
    assert fill(part).folded == int(part.state()["next"])
    assert table_of(part) == {b"a": b"one", b"d": b"plain"}
    assert runner.command("EXISTS", part.keys.table_newer) == 0


def test_a_commit_does_not_replace_newer_records(runner: Runner) -> None:
    part = with_table(runner)
    put(part, (b"removed", b"old"))
    producer = Producer(part, 1)
    producer.put((b"a", b"txn"), (b"removed", b"txn"), (b"b", b"txn"))
    put(part, (b"a", b"newer"), (b"removed", None))
    producer.put((b"b", b"last"))
    producer.end(committed=True)
    fill(part, at_most=1)
    assert table_of(part) == {b"a": b"newer", b"b": b"last"}


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_entries_of_xadd_are_added_by_a_fill_in_the_order_of_the_log(
    runner: Runner, mode: str
) -> None:
    part = with_table(runner, mode)
    part.native(b"key", b"a", b"value", b"xadd")
    part.native(b"key", b"b", b"value", b"xadd")
    put(part, (b"a", b"append"))
    assert table_of(part) == {b"a": b"append"}
    part.native(b"key", b"c", b"value", b"xadd")
    assert fill(part).folded == part.bounds().next
    assert table_of(part) == {b"a": b"append", b"b": b"xadd", b"c": b"xadd"}
    put(part, (b"c", b"append"))
    assert table_of(part)[b"c"] == b"append"
    assert runner.command("EXISTS", part.keys.table_newer) == 0


def test_a_table_that_is_enabled_later_is_filled_in_steps(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    for n in range(20):
        put(part, (b"%d" % (n % 7), b"%d" % n))
    put(part, (b"6", None))
    assert runner.run(part.keys.set_table(action="on")).behind == 1
    reply = runner.run(part.keys.fill_table((), at_most=5))
    assert (reply.folded, reply.more) == (5, 1)
    put(part, (b"0", b"new"), (b"1", None))
    assert fill(part, 5).folded == 23
    expected = {b"%d" % (n % 7): b"%d" % n for n in range(20)} | {b"0": b"new"}
    expected = {k: v for k, v in expected.items() if k not in (b"1", b"6")}
    assert table_of(part) == expected
    runner.command("HSET", part.keys.table, b"2", b"of another program", b"x", b"y")
    assert runner.run(part.keys.set_table(action="on")).behind == 0
    assert runner.run(part.keys.set_table(action="rebuild")).behind == 1
    fill(part)
    assert table_of(part) == expected
    runner.run(part.keys.set_table(action="off"))
    assert table_of(part) == {} and "table" not in part.state()


def test_a_fill_asks_for_compressed_values(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    packed = [4, b"key", b"a", b"value.lz4", b"packed"]
    part.append(1, fields=packed)
    put(part, (b"b", b"plain"))
    runner.run(part.keys.set_table(action="on"))
    part.append(1, fields=packed)
    put(part, (b"c", b"plain"))
    reply = runner.run(part.keys.fill_table((), at_most=100))
    assert (reply.folded, reply.more) == (0, 1)
    assert reply.packed == [b"0", b"value.lz4", b"packed", b"2", b"value.lz4", b"packed"]
    reply = runner.run(part.keys.fill_table([b"0", b"first", b"2", b"second"], at_most=100))
    assert (reply.folded, reply.more) == (4, 0)
    assert table_of(part) == {b"a": b"second", b"b": b"plain", b"c": b"plain"}
    part.append(1, fields=packed)
    assert part.state()["table"] == "4"


def test_a_field_that_only_begins_like_a_compressed_value_is_ignored(runner: Runner) -> None:
    part = with_table(runner)
    part.native(b"key", b"a", b"value", b"1", b"value.unit", b"pieces")
    part.append(1, fields=[4, b"key", b"b", b"value.unit", b"pieces"])
    fill(part)
    assert table_of(part) == {b"a": b"1"}


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_a_table_continues_after_a_new_leader_epoch(runner: Runner, mode: str) -> None:
    part = with_table(runner, mode)
    put(part, (b"a", b"1"))
    lost = part.bounds().next + 5
    marker = control_records.fields_of(1000, 1, 0, False)
    call = part.keys.begin_epoch(marker, epoch=1, known=lost, size=10)
    assert runner.run(call).error == 0
    put(part, (b"a", None), (b"b", b"2"))
    assert table_of(part) == {b"b": b"2"}
    assert fill(part).folded == part.bounds().next
    put(part, (b"c", b"3"))
    assert table_of(part) == {b"b": b"2", b"c": b"3"}
    assert runner.command("EXISTS", part.keys.table_newer) == 0


def test_scheduled_records_are_added_when_they_are_due_and_known_ones_never(lua: LuaRunner) -> None:
    part = Part(lua, mode="dense", table=1, dedupe="60000:100").create()
    for value in (b"late", b"again"):
        words = b"6", b"key", b"a", b"value", value, b"header.korvet-dedupe-id", b"1"
        stored = b"".join(b"%d:%s" % (len(word), word) for word in words)
        schedule.add(part, schedule.row(part, b"", "in", 50)._replace(payload=stored))
    put(part, (b"a", b"early"))
    lua.advance(100)
    assert schedule.move(part).wait_ms == -1
    assert table_of(part) == {b"a": b"late"}


def test_set_table_and_fill_table_refuse_another_topics_log(runner: Runner) -> None:
    for error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        other = KEYS.partition("t", 0, "f" * 32)
        assert runner.run(other.set_table(action="on")).error == error
        assert runner.run(other.fill_table((), at_most=1)).error == error
        if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            with_table(runner)


def test_a_deleted_log_has_no_table(runner: Runner) -> None:
    part = with_table(runner)
    producer = Producer(part, 1)
    producer.put((b"a", b"1"))
    put(part, (b"b", b"2"))
    assert runner.command("EXISTS", part.keys.table, part.keys.table_newer) == 2
    runner.run(KEYS.partition("t", 0, ID).delete())
    assert runner.command("EXISTS", part.keys.table, part.keys.table_newer) == 0


def offsets_of(part: Part) -> dict[bytes, int]:
    """Return the offsets that the table has."""
    flat: Any = part.runner.command("ZRANGE", part.keys.table_newer, 0, -1, "WITHSCORES")
    return {key: int(float(score)) for key, score in zip(flat[::2], flat[1::2], strict=True)}


def expecting(offset: object, key: bytes | None = b"a", value: bytes | None = b"new") -> list[Any]:
    """Return a record that expects its key's newest record at the offset."""
    words = fields((key, value))
    words[0] += 2
    return [*words, b"header.korvet-expected-offset", b"%s" % str(offset).encode()]


def expect(part: Part, *words: Any, **changes: Any) -> tuple[ErrorCode, int]:
    """Append such records; return error and base. One that is refused writes nothing."""
    before, count = part.state(), sum(word == b"header.korvet-expected-offset" for word in words)
    reply = part.append(count, fields=words, **changes)
    assert reply.stored == (reply.error == 0)
    assert reply.stored or part.state() == before
    return ErrorCode(reply.error), reply.base


CHANGED = ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_a_record_is_refused_unless_its_keys_newest_record_has_the_expected_offset(
    runner: Runner, mode: str
) -> None:
    part = with_table(runner, mode, 2)
    assert expect(part, *expecting(0)) == (CHANGED, -1)
    error, first = expect(part, *expecting(-1))
    assert error == 0
    assert expect(part, *expecting(-1)) == (CHANGED, first)
    assert expect(part, *expecting(first, b"b")) == (CHANGED, -1)
    both = [*expecting(first), *expecting(first, b"b")]
    assert expect(part, *both) == (CHANGED, -1), "neither is stored"
    second = put(part, (b"a", b"2"), form=rows)
    assert expect(part, *expecting(first)) == (CHANGED, second)
    error, third = expect(part, *expecting(second), *expecting(-1, b"b"))
    assert error == 0 and offsets_of(part) == {b"a": third, b"b": third + 1}
    last = put(part, (b"a", None), (b"b", b"x"), (b"b", b"y"))
    assert offsets_of(part) == {b"b": last + 2}
    assert expect(part, *expecting(third)) == (CHANGED, -1)
    assert expect(part, *expecting(-1))[0] == 0
    assert table_of(part) == {b"a": b"new", b"b": b"y"}


def test_an_offset_is_not_expected_where_it_is_not_known(runner: Runner) -> None:
    part = with_table(runner)
    invalid = (ErrorCode.INVALID_RECORD, -1)
    assert expect(part, *expecting(-1)) == invalid
    runner.run(part.keys.set_table(action="offsets"))
    assert expect(part, *expecting(-1, key=None)) == invalid
    assert expect(part, *expecting("one")) == invalid
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    assert expect(part, *expecting(-1), **producer, transaction=1) == invalid
    assert expect(part, *expecting(-1), **producer)[0] == 0
    reply = part.append(1, fields=expecting(-1), **producer)
    assert (reply.error, reply.base, reply.stored) == (0, 0, 0), "it is a duplicate"
    assert expect(part, *expecting(-1), **producer | {"base_sequence": 1}) == (CHANGED, 0)


def test_an_offset_is_expected_again_once_the_table_is_filled(runner: Runner) -> None:
    part, incomplete = with_table(runner), (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    put(part, (b"a", b"1"), (b"b", b"2"), (b"b", None))
    runner.run(part.keys.set_table(action="offsets"))
    assert expect(part, *expecting(0)) == incomplete
    fill(part)
    assert offsets_of(part) == {b"a": 0}
    part.native(b"key", b"a", b"value", b"xadd")
    assert expect(part, *expecting(0)) == incomplete
    fill(part)
    assert expect(part, *expecting(0)) == (CHANGED, 3)
    producer = Producer(part, 1)
    producer.put((b"a", b"txn"), (b"c", b"txn"))
    assert expect(part, *expecting(3, b"a", b"1"))[0] == 0, "the open transaction is older"
    put(part, (b"b", b"3"), (b"b", None))
    assert expect(part, *expecting(8, b"b"))[0] == 0
    producer.end(committed=True)
    assert expect(part, *expecting(6)) == incomplete
    fill(part)
    assert offsets_of(part) == {b"a": 6, b"b": 9, b"c": 5}
    assert table_of(part) == {b"a": b"1", b"b": b"new", b"c": b"txn"}
    runner.run(part.keys.set_table(action="on"))
    assert expect(part, *expecting(6)) == (ErrorCode.INVALID_RECORD, -1)
    fill(part)
    assert offsets_of(part) == {}


@dataclass
class World:
    """A partition, its transactions, and all entries that its stream ever had."""

    part: Part
    rng: Random
    entries: dict[str, list[bytes]] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    """Entries of open and aborted transactions."""
    later: set[str] = field(default_factory=set)
    """Entries that only a fill adds."""
    open: dict[int, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producers = [Producer(self.part, n) for n in range(1, 4)]

    def note(self) -> set[str]:
        """Read the entries; return the new ones."""
        flat: Any = self.part.runner.command("XRANGE", self.part.keys.stream, "-", "+")
        now = {row[0].decode(): list(row[1]) for row in flat}
        new = now.keys() - self.entries.keys()
        self.entries |= now
        return new

    def pair(self) -> Pair:
        """Return a random key and value."""
        key = self.rng.choice([None, *(b"k%d" % n for n in range(6))])
        return key, self.rng.choice([None, b"", b"v%d" % self.rng.randrange(10**6)])

    def append(self) -> None:
        """Append a batch without a transaction; its newest values are in the table at once."""
        pairs = [self.pair() for _ in range(self.rng.randint(1, 4))]
        form: Any = fields
        if all(None not in pair for pair in pairs):
            form = self.rng.choice([fields, rows, columns])
        put(self.part, *pairs, form=form)
        table = table_of(self.part)
        for key, value in {key: value for key, value in pairs if key is not None}.items():
            assert table.get(key) == value

    def transact(self) -> None:
        """Append to a transaction, or end it."""
        producer = self.rng.choice(self.producers)
        if self.rng.random() < 0.6:
            self.note()
            producer.put(*(self.pair() for _ in range(self.rng.randint(1, 3))))
            own = self.note()
            self.left_out |= own
            self.later |= own
            self.open.setdefault(producer.id, set()).update(own)
        elif producer.id in self.open:
            committed = self.rng.random() < 0.6
            producer.end(committed=committed)
            own = self.open.pop(producer.id)
            if committed:
                self.left_out -= own

    def native(self) -> None:
        """Add an entry with XADD."""
        key, value = self.pair()
        words = [] if key is None else [b"key", key]
        self.part.native(*words, *([b"x", b"y"] if value is None else [b"value", value]))
        self.later |= self.note()

    def trim(self) -> None:
        """Delete some records that the table has."""
        folded = int(self.part.state()["table"])
        self.part.truncate(self.rng.randint(0, folded))

    def fold(self) -> dict[bytes, bytes]:
        """Return the newest value of each key, of the entries that count now."""
        found: dict[bytes, bytes] = {}
        folded = int(self.part.state()["table"])
        for id in sorted(self.entries, key=lambda id: tuple(map(int, id.split("-")))):
            words = dict(zip(self.entries[id][::2], self.entries[id][1::2], strict=True))
            ms, seq = map(int, id.split("-"))
            is_filled = (ms << self.part.bits) + seq < folded if ms < 2**50 else seq < folded
            is_out = id in self.left_out or (id in self.later and not is_filled)
            if is_out or b"key" not in words:
                continue
            if b"value" in words:
                found[words[b"key"]] = words[b"value"]
            else:
                found.pop(words[b"key"], None)
        return found

    def offsets(self) -> dict[bytes, int]:
        """Return the offset of each key's newest value, in mode `dense`."""
        found: dict[bytes, int] = {}
        for id in sorted(self.entries, key=lambda id: tuple(map(int, id.split("-")))):
            words = dict(zip(self.entries[id][::2], self.entries[id][1::2], strict=True))
            if id in self.left_out or b"key" not in words:
                continue
            if b"value" in words:
                found[words[b"key"]] = int(id.partition("-")[2])
            else:
                found.pop(words[b"key"], None)
        return found

    def step(self) -> None:
        """Do one thing."""
        ways = [self.append] * 4 + [self.transact] * 4 + [self.native, self.trim, self.fill_some]
        self.rng.choice(ways)()
        self.note()
        assert table_of(self.part) == self.fold()

    def fill_some(self) -> None:
        """Fill a part of the table."""
        self.part.runner.run(self.part.keys.fill_table((), at_most=self.rng.randint(1, 4)))


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("action", ["on", "offsets"])
@pytest.mark.parametrize("seed", seeds(range(12)))
def test_a_table_equals_the_fold_of_its_log(
    lua: LuaRunner, mode: str, action: str, seed: int
) -> None:
    rng = Random(seed)
    is_early = rng.random() < 0.7
    part = Part(lua, mode=mode, table=(1 + (action == "offsets")) * is_early).create()
    world = World(part, rng)
    for _ in range(rng.randint(0, 10)):
        put(part, world.pair())
        new = world.note()
        world.later |= set() if is_early else new
    lua.run(part.keys.set_table(action=action))
    for _ in range(60):
        lua.advance(rng.choice([0, 1, 5]))
        world.step()
        if not world.open and rng.random() < 0.3:
            fill(part)
            check_table(world, action)
    for producer in world.producers:
        if producer.id in world.open:
            producer.end(committed=False)
    fill(part)
    check_table(world, action)


def check_table(world: World, action: str) -> None:
    """Check that a table that is filled is that of the log."""
    part = world.part
    assert table_of(part) == world.fold()
    offsets = offsets_of(part)
    if action == "on":
        assert offsets == {}
    elif part.state()["mode"] == "dense":
        assert offsets == world.offsets()
    else:
        assert offsets.keys() == table_of(part).keys()
