"""Check log.append: a batch is appended at consecutive offsets, or nothing changes."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.base.errors import ErrorCode
from korvet.scripts.append_call import allow_expired_producer
from korvet.testing import LuaRunner
from tests.lua.partition import DENSE_MS, OTHER_ID, Part
from tests.support.store_runners import Runner

SHAPES = [("record", "time"), ("record", "dense"), ("batch", "time"), ("batch", "dense")]

Y2100 = 4_102_444_800_000
Y2039 = 2_199_000_000_000

shapes = pytest.mark.parametrize(("form", "mode"), SHAPES, ids=lambda word: word)


def test_a_partition_that_is_not_there_is_unknown(runner: Runner) -> None:
    assert Part(runner).append().error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert runner.command("EXISTS", Part(runner).keys.stream) == 0


REFUSALS = [
    ({"topic_id": OTHER_ID}, ErrorCode.UNKNOWN_TOPIC_ID),
    ({"producer_epoch": 2, "base_sequence": 3}, ErrorCode.INVALID_PRODUCER_EPOCH),
    ({"producer_epoch": 3, "base_sequence": 7}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ({"producer_epoch": 3, "base_sequence": 5}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ({"producer_epoch": 4, "base_sequence": 6}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
]


@pytest.mark.parametrize(("changes", "error"), REFUSALS)
def test_a_rejected_batch_changes_nothing(
    runner: Runner, changes: dict[str, int], error: ErrorCode
) -> None:
    part = Part(runner).create()
    part.append(6, producer_id=9, producer_epoch=3, base_sequence=0)
    before = (part.ids(), part.state())
    reply = part.append(2, **{"producer_id": 9, **changes})
    assert (reply.error, reply.base) == (error, -1)
    assert (part.ids(), part.state()) == before


@shapes
def test_offsets_follow_one_another(runner: Runner, form: str, mode: str) -> None:
    part = Part(runner, form, mode).create()
    first, second = part.append(3), part.append(2)
    assert first.error == second.error == 0
    assert first.stored == second.stored == 1
    assert second.base >= first.base + 3
    if mode == "dense":
        assert (first.base, second.base) == (0, 3)
    each = [range(3), range(2)] if form == "record" else [[2], [1]]
    expected = [first.base + n for n in each[0]] + [second.base + n for n in each[1]]
    assert part.offsets() == expected
    bounds = part.bounds()
    assert (bounds.first, bounds.next) == (first.base, second.base + 2)
    assert (bounds.bytes, bounds.records) == (50, 5)


def test_a_time_offset_is_the_clock_and_never_falls_behind_next(lua: LuaRunner) -> None:
    part = Part(lua).create()
    assert part.append(3).base == lua.now_ms() << 10
    lua.advance(-5000)  # the clock stepped back
    assert part.append().base == part.offsets()[2] + 1
    lua.advance(60_000)
    assert part.append().base == lua.now_ms() << 10


def test_offsets_roll_into_the_next_millisecond(lua: LuaRunner) -> None:
    part = Part(lua, bits=8).create()
    base = part.append(300).base
    assert part.offsets() == [base + n for n in range(300)]
    assert part.ids()[255:257] == [f"{lua.now_ms()}-255", f"{lua.now_ms() + 1}-0"]


@pytest.mark.parametrize(("bits", "ms"), [(8, Y2100), (10, Y2100), (11, Y2100), (12, Y2039)])
def test_an_offset_keeps_all_its_digits(lua: LuaRunner, bits: int, ms: int) -> None:
    """Lua counts in doubles: with 12 bits the last exact moment is in September 2039."""
    part = Part(lua, bits=bits).create()
    lua.advance(ms - lua.now_ms())
    base = part.append(2).base
    assert base == ms << bits < 2**53
    assert part.bounds().next == base + 2
    assert part.offsets() == [base, base + 1]


@pytest.mark.parametrize("newest", [2**62, 2**62 + 1, 2**63 - 1])
def test_the_state_has_timestamps_up_to_the_greatest_exact_one(lua: LuaRunner, newest: int) -> None:
    part = Part(lua).create()
    assert part.append(1, max_timestamp=newest).error == 0
    assert float(part.state()["max_timestamp"]) == 2**62


def test_the_append_time_is_the_servers_and_is_stored_in_the_entry(lua: LuaRunner) -> None:
    part = Part(lua).create()
    reply = part.append(2, stamp=1, max_timestamp=5)
    assert reply.append_time == lua.now_ms()
    assert part.state()["max_timestamp"] == str(lua.now_ms())
    (_, fields), _ = lua.command("XRANGE", part.keys.stream, "-", "+")
    assert fields[:2] == [b"append.time", b"%d" % lua.now_ms()]


@shapes
def test_a_duplicate_batch_is_answered_with_the_stored_offset(
    runner: Runner, form: str, mode: str
) -> None:
    part = Part(runner, form, mode).create()
    bases = [
        part.append(2, producer_id=1, producer_epoch=0, base_sequence=2 * n).base for n in range(5)
    ]
    for n in (4, 0, 2):
        reply = part.append(2, producer_id=1, producer_epoch=0, base_sequence=2 * n)
        assert (reply.error, reply.base, reply.stored) == (0, bases[n], 0)
    assert part.bounds().records == 10


def test_a_duplicate_older_than_five_batches_has_no_offset(
    runner: Runner,
) -> None:
    part = Part(runner).create()
    for n in range(6):
        part.append(producer_id=1, producer_epoch=0, base_sequence=n)
    reply = part.append(producer_id=1, producer_epoch=0, base_sequence=0)
    assert reply.error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_sequences_wrap_around(runner: Runner) -> None:
    part = Part(runner).create()
    begun = allow_expired_producer(
        part.call(4, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    )
    first = runner.run(begun)
    second = part.append(4, producer_id=1, producer_epoch=0, base_sequence=2)
    again = part.append(4, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert (first.error, second.error, again.error) == (0, 0, 0)
    assert (again.base, again.stored) == (first.base, 0)


def test_a_new_epoch_begins_at_sequence_0(runner: Runner) -> None:
    part = Part(runner).create()
    part.append(4, producer_id=1, producer_epoch=0, base_sequence=0)
    assert part.append(producer_id=1, producer_epoch=1, base_sequence=0).stored == 1
    late = part.append(producer_id=1, producer_epoch=0, base_sequence=4)
    assert late.error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_starts_at_sequence_0_or_is_unknown(runner: Runner) -> None:
    part = Part(runner).create()
    begin = {"producer_id": 2**51 - 1, "producer_epoch": 0}
    reply = part.append(2, base_sequence=7, **begin)
    assert (reply.error, reply.base) == (ErrorCode.UNKNOWN_PRODUCER_ID, -1)
    assert part.ids() == []
    forgotten = part.call(2, base_sequence=7, **begin)
    assert runner.run(allow_expired_producer(forgotten)).stored == 1
    again = runner.run(allow_expired_producer(forgotten))
    assert (again.error, again.stored) == (0, 0)
    assert runner.run(allow_expired_producer(part.call(2, base_sequence=11, **begin))).error
    assert part.append(2, base_sequence=9, **begin).stored == 1
    assert runner.run(allow_expired_producer(part.call(1, base_sequence=11, **begin))).stored == 1
    assert part.append(1, base_sequence=12, **begin).stored == 1


def test_producers_whose_state_never_expires_start_at_sequence_0(runner: Runner) -> None:
    part = Part(runner).create()
    sparks = [{"producer_id": 2**51}, {"producer_id": 2**53 - 1}]
    for who in [*sparks, {"producer_id": 4, "transaction": 3}]:
        begin: dict[str, int] = {**who, "producer_epoch": 0}
        reply = part.append(2, base_sequence=7, **begin)
        assert reply.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert part.append(2, base_sequence=0, **begin).stored == 1
        assert part.append(2, base_sequence=2, **begin).stored == 1


def test_producers_do_not_disturb_each_other(runner: Runner) -> None:
    part = Part(runner).create()
    for sequence in range(3):
        for producer in range(4):
            reply = part.append(
                producer_id=producer, producer_epoch=producer, base_sequence=sequence
            )
            assert reply.stored == 1


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_an_append_goes_behind_native_entries(runner: Runner, mode: str) -> None:
    part = Part(runner, mode=mode).create()
    part.append(2)
    for _ in range(3):
        part.native()
    end = part.bounds().next
    reply = part.append(2)
    assert reply.base >= end
    offsets = part.offsets()
    assert offsets[-2:] == [reply.base, reply.base + 1]
    assert offsets == sorted(set(offsets))
    if mode == "dense":
        assert offsets == list(range(7))


def test_a_native_entry_takes_the_next_dense_offset(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    part.native()
    assert part.ids() == [f"{DENSE_MS}-0"]
    assert part.append().base == 1


def test_byte_positions_grow_by_what_each_entry_takes(runner: Runner) -> None:
    part = Part(runner, "batch", "bytes").create()
    fields = [7, 2, b"data", b"a", 30, 2, b"data", b"b"]
    first = part.append(2, fields=fields)
    second = part.append(1, fields=[5, 2, b"data", b"c"])
    assert (first.base, second.base) == (0, 37)
    assert part.offsets() == [6, 36, 41]
    assert part.bounds().next == 42


def test_the_index_grows_by_a_row_each_64_kib(runner: Runner) -> None:
    part = Part(runner).create()
    bases = [part.append(size=30_000).base for _ in range(9)]
    rows = runner.command("ZRANGE", part.keys.index, 0, -1)
    assert isinstance(rows, list)
    offsets = [int(row.split(b":")[0]) for row in rows]
    assert offsets == bases[::3]
    totals = [int(row.split(b":")[2]) for row in rows]
    assert totals == [0, 90_000, 180_000]


def test_an_append_publishes_the_new_end(lua: LuaRunner) -> None:
    part = Part(lua, mode="dense").create()
    received = lua.redis.pubsub()
    received.subscribe(part.keys.channel)
    part.append(3)
    messages = [received.get_message(timeout=0) for _ in range(2)]
    assert messages[1] is not None and messages[1]["data"] == b"3"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("native"), st.integers(1, 3)),
        st.tuples(st.just("trim"), st.integers(0, 10)),
        st.tuples(st.just("truncate"), st.integers(0, 10)),
        st.tuples(st.just("clock"), st.integers(-50, 50)),
    ),
    max_size=25,
)


@pytest.mark.parametrize(("form", "mode"), SHAPES, ids=lambda word: word)
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(steps=STEPS)
def test_offsets_rise_and_what_is_acknowledged_stays_where_it_is(
    form: str, mode: str, steps: list[tuple[str, int]]
) -> None:
    """Invariants 1 and 2 of the log, with appends, foreign entries and trims."""
    runner = LuaRunner()
    part = Part(runner, form, mode, bits=8).create()
    acknowledged: dict[int, bytes] = {}
    floor = 0
    for number, (what, n) in enumerate(steps):
        if what == "append":
            word = b"%d." % number
            fields = part.fields(n, word)
            if form == "batch":
                fields = [b"data", word, b"count", n]
            before = part.bounds().next
            base = part.append(n, fields=fields).base
            assert base >= before, "an offset was given twice"
            last = base + n - 1
            if form == "batch":
                acknowledged[last] = word
            else:
                acknowledged |= {base + i: b"%s%d" % (word, i) for i in range(n)}
        elif what == "native" and form == "record":
            for _ in range(n):
                part.native()
        elif what == "trim":
            runner.command("XTRIM", part.keys.stream, "MAXLEN", n)
            live = part.offsets()
            floor = max(floor, live[0] if live else part.bounds().next)
        elif what == "truncate" and part.offsets():
            target = part.offsets()[min(n, len(part.offsets()) - 1)]
            part.truncate(target)
            floor = max(floor, target)
        elif what == "clock":
            runner.advance(n)
        _check(part, {o: w for o, w in acknowledged.items() if o >= floor})


def _check(part: Part, acknowledged: dict[int, bytes]) -> None:
    offsets = part.offsets()
    assert all(a < b for a, b in pairwise(offsets))
    bounds = part.bounds()
    if offsets:
        assert bounds.next > offsets[-1]
        assert bounds.start <= offsets[0]
    assert bounds.start <= bounds.first <= bounds.next
    rows = part.runner.command("XRANGE", part.keys.stream, "-", "+")
    assert isinstance(rows, list)
    found = {offset: row[1][1] for offset, row in zip(offsets, rows, strict=True)}
    assert acknowledged.items() <= found.items()


@pytest.mark.parametrize("stamp", [0, 1])
def test_columns_are_the_entries_they_describe(runner: Runner, stamp: int) -> None:
    part = Part(runner, "record", "dense").create()
    lengths = b"".join(n.to_bytes(4, "little") for n in (300, 0, 2))
    keys, values = (b"key", 1, b"", b"abc"), (b"value", -1, lengths, b"x" * 300 + b"zz")
    columns = (b"columns", 3, *keys, *values, b"none", 0, b"", b"")
    for first in (0, 3):
        assert part.append(3, stamp=stamp, fields=columns).base == first
    rows: list[tuple[bytes, list[bytes]]] = runner.command("XRANGE", part.keys.stream, "-", "+")  # type: ignore[assignment]
    assert part.offsets() == list(range(6))
    expected = [b"x" * 300, b"", b"zz"] * 2
    for (_, fields), key, value in zip(rows, b"abcabc", expected, strict=True):
        assert fields[-6:] == [b"key", bytes([key]), b"value", value, b"none", b""]
        assert (fields[0] == b"append.time", len(fields)) == (bool(stamp), 6 + 2 * stamp)


@pytest.mark.parametrize("wide", [1, 4])
def test_columns_of_many_lengths_are_the_entries_they_describe(lua: LuaRunner, wide: int) -> None:
    part = Part(lua, "record", "dense").create()
    values = [b"v" * (n % 7) for n in range(5000)]
    lengths = b"".join(len(value).to_bytes(wide, "little") for value in values)
    assert not part.append(
        5000, fields=(b"columns", 1, b"value", -1, lengths, b"".join(values))
    ).error
    rows: list[tuple[bytes, list[bytes]]] = lua.command("XRANGE", part.keys.stream, "-", "+")  # type: ignore[assignment]
    assert [fields[1] for _, fields in rows] == values


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("stamps", [b"7717", b"7" * 4, b""])
@pytest.mark.parametrize("fields", [2, 3])
def test_columns_of_equal_lengths_are_the_entries_they_describe(
    runner: Runner, fields: int, stamps: bytes, native: bool
) -> None:
    part = Part(runner, "record", "dense").create()
    first = 0
    if native:
        runner.command("XADD", part.keys.stream, f"{DENSE_MS}-5", "value", "native")
        first = 6
    four = ((b"key", 2, b"", b"aabbccdd"), (b"value", 0, b"", b""))
    four += ((b"timestamp", len(stamps) // 4, b"", stamps),)
    columns = [each for column in four[:fields] for each in column]
    assert part.append(4, fields=(b"columns", fields, *columns)).base == first
    rows: list[tuple[bytes, list[bytes]]] = runner.command("XRANGE", part.keys.stream, "-", "+")  # type: ignore[assignment]
    assert part.offsets() == [*([5] if native else []), *range(first, first + 4)]
    for n, (_, found) in enumerate(rows[-4:]):
        expected = [b"key", b"aabbccdd"[2 * n : 2 * n + 2], b"value", b""]
        if fields == 3:
            expected += [b"timestamp", stamps[n : n + 1]]
        assert found == expected


@pytest.mark.parametrize("stamp", [0, 1])
@pytest.mark.parametrize("fields", [2, 3, 4])
@pytest.mark.parametrize(
    "way", ["rows", "columns", "columns, a byte a length", "columns of one length"]
)
@pytest.mark.parametrize(("mode", "bits"), [("time", 8), ("dense", 10)])
def test_records_with_the_same_fields_stand_one_behind_another_over_many_milliseconds(
    runner: Runner, mode: str, bits: int, way: str, fields: int, stamp: int
) -> None:
    count = 600  # 8 bits are 256 offsets a millisecond
    part = Part(runner, "record", mode, bits).create()
    part.append(3)
    one = way in ("rows", "columns of one length")
    keys = [b"%06d" % n if one else b"%d" % (n**2) for n in range(count)]
    named = [(b"key", keys), (b"value", [b"v" * (n % 3) for n in range(count)])]
    named += [(b"timestamp", [b"1700000000000"] * count), (b"header.n", keys)]
    named = named[:fields]
    if way == "rows":
        given = [-fields, *(name for name, _ in named)]
        given += [
            value for row in zip(*(values for _, values in named), strict=True) for value in row
        ]
    else:
        given = [b"columns", fields]
        for name, values in named:
            lengths = [len(value) for value in values]
            alike = len(set(lengths)) == 1
            wide = 1 if "byte" in way else 4
            packed = b"" if alike else b"".join(n.to_bytes(wide, "little") for n in lengths)
            given += [name, lengths[0] if alike else -1, packed, b"".join(values)]
    reply = part.append(count, stamp=stamp, fields=given)
    assert (reply.error, reply.stored) == (0, 1)
    assert part.offsets()[3:] == list(range(reply.base, reply.base + count))
    assert part.append(1).base >= reply.base + count
    rows: list[tuple[bytes, list[bytes]]] = runner.command("XRANGE", part.keys.stream, "-", "+")  # type: ignore[assignment]
    for n, (_, found) in enumerate(rows[3:-1]):
        assert found[2 * stamp :] == [each for name, values in named for each in (name, values[n])]
