"""Check local.memory.bytes: records leave Redis early, producers wait, full logs refuse."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.remote_log import evictor, memory
from korvet.remote_log.evictor import MemoryEvictor
from korvet.remote_log.memory import above_share, share_of
from tests.support.connected_broker import Broker
from tests.support.exchanges import SHAPES, fetch, packed, produce, rows_in
from tests.support.redis_servers import TestServer

_namespaces = itertools.count()
BATCHES = 8


@pytest.fixture
async def broker(valkey_server: TestServer, tmp_path: Path) -> AsyncIterator[Broker]:
    options = {"redis": valkey_server.url, "namespace": f"memory{next(_namespaces)}"}
    sets = [
        "remote.log.storage.system.enable=true",
        f"remote.storage.url=file://{tmp_path}",
        "remote.fetch.max.wait.ms=10000",
        f"local.memory.bytes={1 << 40}",
    ]
    async with connected(load(options, sets=sets, environ={})) as services:
        yield Broker(services)


class Used:
    """A stand-in for the used memory: a base, and the bytes of the partition's records."""

    def __init__(self, broker: Broker, budget: int) -> None:
        self._broker = broker
        self.base = 0
        self.budget = budget

    async def read(self) -> dict[str, int]:
        services = self._broker.services
        keys = services.keys.partition("t", 0)
        size = await services.store.command("MEMORY", "USAGE", keys.stream, "SAMPLES", 0) or 0
        return {services.store.run_of(keys.stream): self.base + size}


async def fill(broker: Broker, **configs: str) -> list[tuple[int, bytes | None]]:
    sent = []
    await broker.create("t", partitions=1, retention_ms="-1", **configs)
    for at in range(BATCHES):
        rows: list[Any] = [
            (at * 10 + n, 1000 + at * 10 + n, b"k", b"%04d" % n * 2000, []) for n in range(10)
        ]
        answer = await produce(broker, packed([(n, *row[1:]) for n, row in enumerate(rows)], 13))
        assert answer.error_code == 0
        sent += [(row[1], row[3]) for row in rows]
    return sent


def evicting(broker: Broker, used: Used, monkeypatch: pytest.MonkeyPatch) -> MemoryEvictor:
    services = broker.services
    monkeypatch.setattr(services.store, "used_memory", used.read)
    monkeypatch.setattr(memory.MemoryBudget, "bytes", property(lambda _: used.budget))
    monkeypatch.setattr(evictor, "MIN_COPY_BYTES", 1)
    # One index step at a time.
    monkeypatch.setattr(evictor, "INDEX_STEP_BYTES", 1 << 40)
    manager = services.tiered.manager("one")
    assert manager is not None
    return services.tiered.evictor(manager, "one")


@pytest.mark.parametrize(("form", "mode"), [shape for shape in SHAPES if shape[1] != "bytes"])
async def test_records_leave_a_nearly_full_redis_before_their_local_retention(
    broker: Broker, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = await fill(broker, storage_format=form, offset_mode=mode, remote_storage_enable="true")
    used = Used(broker, 10**9)
    task = evicting(broker, used, monkeypatch)
    full = (await used.read()).popitem()[1]
    used.budget = int(full / 0.95)
    while await task.make_room():
        pass
    services = broker.services
    assert services.memory.level <= memory.COPY_MARK
    assert services.memory.level > memory.TRIM_MARK / 2  # no more records leave than must
    found: list[tuple[int, bytes | None]] = []
    offset = 0
    while len(found) < len(sent):
        answer = await fetch(broker, offset, size=100_000)
        rows = [row for row in rows_in(answer.records, 18) if row[0] >= offset]
        found += [(row[1], row[3]) for row in rows]
        offset = rows[-1][0] + 1
    assert found == sent


async def test_records_of_a_topic_that_is_not_tiered_stay_and_further_ones_are_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(broker)
    used = Used(broker, 1000)
    task = evicting(broker, used, monkeypatch)
    assert not await task.make_room()
    answer = await produce(broker, packed([(0, 1, b"k", b"v", [])], 13))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    used.budget = 10**9
    await broker.services.memory.read()
    answer = await produce(broker, packed([(0, 1, b"k", b"v", [])], 13))
    assert answer.error_code == 0


async def test_a_topic_that_fills_redis_stops_no_other_topics_producers(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the default set-up, every Produce of every topic was refused for good."""
    await fill(broker)
    await broker.create("other", partitions=1)
    caplog.set_level("INFO")
    monkeypatch.setattr(memory.logger, "_written", {})
    used, services = Used(broker, 1000), broker.services
    evicting(broker, used, monkeypatch)
    batch = packed([(0, 1, b"k", b"v", [])], 13)
    for _ in range(2):
        await services.memory.read()
        refused = await produce(broker, batch)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert refused.error_message and "local.memory.bytes" in refused.error_message
        assert (await produce(broker, batch, name="other")).error_code == 0
        services.memory._shares._due_at = 0.0
    topics = {name: await services.topics.get(name) for name in ("t", "other")}
    slowed = {
        name: services.memory.slows_any([topic.id]) for name, topic in topics.items() if topic
    }
    assert slowed == {"t": True, "other": False}
    assert services.memory.refused_names == ["t"]
    used.budget = 10**9
    await services.memory.read()
    assert (await produce(broker, batch)).error_code == 0
    said = [record.getMessage() for record in caplog.records]
    assert sum("batches refused" in line for line in said) == 1
    assert sum("batches accepted again" in line for line in said) == 1


@pytest.mark.parametrize(
    ("part", "configs", "is_refused"),
    [
        (0.99, {}, False),
        (1.05, {}, False),
        (1.11, {}, True),
        (0.99, {"remote_log_copy_disable": "true"}, False),
        (1.01, {"remote_log_copy_disable": "true"}, True),
    ],
)
async def test_tiered_topics_are_refused_too_if_copies_do_not_make_room(
    broker: Broker,
    part: float,
    configs: dict[str, str],
    is_refused: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the remote store away, throttled producers would fill the memory of the machine."""
    await broker.create("t", partitions=1, remote_storage_enable="true", **configs)
    memory = broker.services.memory
    monkeypatch.setattr(memory, "level", part)
    answer = await produce(broker, packed([(0, 1, b"k", b"v", [])], 13))
    assert (answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR) == is_refused
    monkeypatch.setattr(memory, "level", 0.5)
    assert (await produce(broker, packed([(0, 1, b"k", b"v", [])], 13))).error_code == 0


@pytest.mark.parametrize(
    ("used", "slows", "most_ms"),
    [(0, False, 0), (85, False, 0), (90, True, 111), (100, True, 1000)],
)
async def test_producers_wait_longer_the_fuller_redis_is(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, used: int, slows: bool, most_ms: int
) -> None:
    async def read() -> dict[str, int]:
        return {"one": used * (1 << 40) // 100}

    monkeypatch.setattr(broker.services.store, "used_memory", read)
    await broker.services.memory.read()
    assert broker.services.memory.slows == slows
    assert broker.services.memory.throttle_ms() == pytest.approx(most_ms, abs=1)


async def test_copies_wait_as_their_rate_limit_requires(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(broker, remote_storage_enable="true")
    services, waits = broker.services, []
    manager = services.tiered.manager("one")
    topic = await services.topics.get("t")
    assert manager is not None and topic is not None

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    limited = services.settings.with_dynamic(
        {"remote.log.manager.copy.max.bytes.per.second": "1000"}
    )
    monkeypatch.setattr(manager._pace, "settings", lambda: limited)
    monkeypatch.setattr("korvet.remote_log.copy_demand.asyncio", SimpleNamespace(sleep=sleep))
    size = await manager.copy(topic, 0, at_once=(1, 1))
    await manager.copy(topic, 0, at_once=(1, 1))
    assert waits == [0, pytest.approx(size / 1000, rel=0.1)]


@pytest.mark.parametrize("busy", ["appends", "catch-up reads"])
async def test_copies_are_slow_while_clients_are_busy(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, busy: str
) -> None:
    services, now = broker.services, monotonic()
    manager, cache = services.tiered.manager("one"), services.log_reader.cache
    assert manager is not None
    monkeypatch.setattr(manager._pace, "_has_room", lambda: True)
    monkeypatch.setattr("korvet.remote_log.copy_demand.monotonic", lambda: now + 1)
    assert not manager._pace.is_slow
    monkeypatch.setattr("korvet.remote_log.copy_demand.monotonic", lambda: now + 2)
    if busy == "appends":
        services.tiered.demand.appended_bytes += 1 << 30
    else:
        cache.catch_up_bytes += 1 << 30
    assert manager._pace.is_slow


async def test_records_that_groups_have_not_read_leave_redis_last(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = {
        "partitions": 1,
        "remote_storage_enable": "true",
        "segment_bytes": "1000",
        "retention_ms": "-1",
    }
    given: dict[str, dict[str, str]] = {"held": {"retention_consumed": "billing"}, "plain": {}}
    services = broker.services
    for name, more in given.items():
        await broker.create(name, **{**configs, **more})  # type: ignore[arg-type]
        # The held records are older.
        first = 1000 if name == "held" else 2000
        for at in range(BATCHES):
            rows: list[Any] = [(n, first + at, b"k", bytes(20_000), []) for n in range(5)]
            assert (await produce(broker, packed(rows, 13), name=name)).error_code == 0
    manager = services.tiered.manager("one")
    assert manager is not None
    await manager.run_once()

    async def left(name: str) -> int:
        return int(await services.store.command("XLEN", services.keys.partition(name, 0).stream))

    before = {name: await left(name) for name in given}
    levels = iter([90.0])

    async def read() -> dict[str, int]:
        percent = next(levels, 70.0)
        run = services.store.run_of(services.keys.partition("held", 0).stream)
        return {run: int(percent * (1 << 40) // 100)}

    monkeypatch.setattr(services.store, "used_memory", read)
    monkeypatch.setattr(evictor, "INDEX_STEP_BYTES", 1 << 40)
    task = services.tiered.evictor(manager, "one")
    assert await task.make_room()
    assert await left("held") == before["held"] and await left("plain") < before["plain"]
    levels = iter([90.0] * 1000)
    while await task.make_room():
        pass
    assert await left("held") < before["held"], "nothing else is left to drop"


@pytest.mark.parametrize(
    ("sizes", "room", "share"),
    [
        ([], 10, float("inf")),
        ([5, 5], 10, float("inf")),
        ([6, 5], 10, 5),
        ([1, 30], 10, 9),
        ([1, 4, 30], 12, 7),
        ([10, 20, 30], 15, 5),
    ],
)
def test_the_share_is_the_largest_at_which_all_fit(
    sizes: list[int], room: float, share: float
) -> None:
    assert share_of(sizes, room) == share
    if share < float("inf"):
        assert sum(min(size, share) for size in sizes) == room


def test_one_topics_records_refuse_no_other_topic() -> None:
    sizes = {"full": 1190, "other": 5, "new": 0}
    assert above_share(sizes, 1200, 1000, 1.1) == {"full"}
    assert above_share(sizes, 1099, 1000, 1.1) == set()


def test_topics_are_equal_if_all_of_them_fill_redis() -> None:
    sizes = {"a": 400, "b": 400, "c": 400}
    assert above_share(sizes, 1250, 1000, 1.1) == {"a", "b", "c"}


def test_keys_of_other_programs_leave_topics_a_tenth() -> None:
    sizes = {"a": 60, "b": 39}
    assert above_share(sizes, 5000, 1000, 1.1) == set()
    assert above_share(sizes | {"b": 60}, 5000, 1000, 1.1) == {"a", "b"}
    assert above_share({"a": 95, "b": 20}, 5000, 1000, 1.1) == {"a"}
