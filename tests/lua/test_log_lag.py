"""Check lag in records: exact in every layout and offset mode."""

from random import Random

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.calls.partition import LagReply
from korvet.scripts.keys import Keys
from korvet.testing import LuaRunner
from tests.lua.partition import ID, Part
from tests.selection import seeds
from tests.support.redis_servers import TestServer
from tests.support.store_runners import Runner, StoreRunner

KEYS = Keys()


def lag(runner: Runner, offset: int, topic_id: str = ID) -> LagReply:
    return runner.run(KEYS.partition("orders", 0, topic_id).lag(offset=offset))


def create(runner: Runner, format: str, mode: str) -> None:
    Part(runner, format, mode, topic="orders").create()


def append(runner: Runner, format: str, count: int, size: int) -> int:
    fields: tuple[object, ...] = (2, b"value", b"v") * count
    if format == "batch":
        fields = (b"batch", b"b", b"count", count, b"max.timestamp", 1)
    return runner.run(
        KEYS.partition("orders", 0, ID).append(
            count=count, size=size, max_timestamp=1, fields=fields
        )
    ).base


def test_what_is_not_there_has_no_lag(runner: Runner) -> None:
    assert lag(runner, 0).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(runner, "record", "time")
    assert lag(runner, 0, "2" * 32).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert (lag(runner, 0).records, lag(runner, 99).records) == (0, 0)


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("format", ["record", "batch"])
@pytest.mark.parametrize("seed", seeds(range(3), quick=1))
def test_lag_counts_the_records_that_are_left(
    lua: LuaRunner, format: str, mode: str, seed: int
) -> None:
    random = Random(f"{format} {mode} {seed}")
    create(lua, format, mode)
    offsets: list[int] = []
    for _ in range(40):
        count = random.randint(1, 12)
        base = append(lua, format, count, random.choice([100, 30_000, 70_000]))
        offsets += range(base, base + count)
        lua.advance(random.choice([0, 1, 50]))
    for _ in range(60):
        at = random.randrange(len(offsets))
        assert lag(lua, offsets[at]).records == len(offsets) - at
    assert lag(lua, offsets[-1] + 1).records == 0
    assert lag(lua, 0).records == len(offsets)
    cut = random.randrange(1, len(offsets))
    lua.run(KEYS.partition("orders", 0, ID).delete_records(before=offsets[cut]))
    later = random.randrange(cut, len(offsets))
    assert lag(lua, offsets[later]).records == len(offsets) - later


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_few_of_many_entries_are_looked_at(redis_server: TestServer, mode: str) -> None:
    """The script blocks Redis: half a million foreign entries took seconds."""
    with redis_server.client() as client:
        runner = StoreRunner(client)
        create(runner, "record", mode)
        stream = KEYS.partition("orders", 0).stream
        ids = [f"{5 + n // 1000}-{n % 1000}" if mode == "time" else "*" for n in range(10_100)]
        add = "for i = 1, #ARGV do redis.call('XADD', KEYS[1], ARGV[i], 'value', 'v') end"
        for at in range(0, len(ids), 1000):
            client.eval(add, 1, stream, *ids[at : at + 1000])
        first = append(runner, "record", 11_000, 100_000)
        append(runner, "record", 2, 100)
        counted = 10_000 if mode == "time" else 10_100
        assert lag(runner, 0).records == counted + 11_002
        assert lag(runner, first).records == 11_002
        assert lag(runner, first + 500).records == 10_502
        assert lag(runner, first + 2000).records == 9_002


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_native_entries_at_the_end_are_counted(runner: Runner, mode: str) -> None:
    create(runner, "record", mode)
    stream = KEYS.partition("orders", 0).stream
    first = append(runner, "record", 3, 70_000)
    append(runner, "record", 2, 100)
    before = lag(runner, first)
    natives = [runner.command("XADD", stream, "*", "value", "v") for _ in range(4)]
    after = lag(runner, first)
    assert (before.records, after.records) == (5, 9)
    end = runner.run(KEYS.partition("orders", 0, ID).list_offsets()).next
    assert after.next == end > before.next
    assert lag(runner, before.next).records == len(natives)
    assert lag(runner, end - 1).records == 1
    assert lag(runner, end).records == 0


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize(("entries", "size"), [(3_000, 10_000), (30, 2_000_000)])
def test_large_native_entries_are_counted_without_reading_them_all(
    lua: LuaRunner, mode: str, entries: int, size: int
) -> None:
    create(lua, "record", mode)
    stream, value = KEYS.partition("orders", 0).stream, b"v" * size
    for _ in range(entries):
        lua.command("XADD", stream, "*", "value", value)
        lua.advance(1)
    assert lag(lua, 0).records == entries
    assert lua.work.bytes < 3 * 8_388_608
    half = lag(lua, 0).next - entries // 2 if mode == "dense" else None
    if half is not None:
        assert lag(lua, half).records == entries // 2


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("format", ["record", "batch"])
def test_the_oldest_record_has_its_own_time(lua: LuaRunner, format: str, mode: str) -> None:
    create(lua, format, mode)
    assert lag(lua, 0).oldest == -1
    bases = []
    for time in range(5_000, 10_000, 1_000):
        fields: tuple[object, ...] = (4, b"value", b"v", b"timestamp", time)
        if format == "batch":
            fields = (b"batch", b"b", b"count", 1, b"max.timestamp", time)
        call = KEYS.partition("orders", 0, ID).append(
            fields, count=1, size=70_000, max_timestamp=time
        )
        bases.append(lua.run(call).base)
        lua.advance(1)
    assert [lag(lua, base).oldest for base in bases] == list(range(5_000, 10_000, 1_000))
    assert lag(lua, 0).oldest == 5_000
    assert lag(lua, bases[-1] + 1).oldest == -1


def test_a_native_entry_without_a_timestamp_has_the_time_of_its_id(lua: LuaRunner) -> None:
    for mode, expected in (("time", 77), ("dense", -1)):
        lua.command("FLUSHALL")
        create(lua, "record", mode)
        native = "77-0" if mode == "time" else "*"
        lua.command("XADD", KEYS.partition("orders", 0).stream, native, "timestamp", "late")
        assert lag(lua, 0).oldest == expected
