"""Check that a partition is copied soon after a segment is full, and waits for busy clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

import pytest

from korvet.config.values import Settings
from korvet.log.layouts import layout_of
from korvet.remote_log import copy_demand
from korvet.remote_log.copier import Collector, CopyCache
from korvet.remote_log.copy_demand import (
    BUSY_BYTES,
    MAX_LAG_BYTES,
    PACE_BYTES,
    CopyDemand,
    CopyPace,
)
from korvet.topics.table import Topic
from korvet.wire.segments import read_segment
from tests.remote_log.test_tiered_log import BATCHES, SEGMENT, Tier, tier
from tests.support.exchanges import packed, produce

__all__ = ["tier"]


KEPT = {"local_retention_bytes": "-1", "local_retention_ms": "-1"}


async def topic_of(tier: Tier) -> Topic:
    topic = await tier.broker.services.topics.get("t")
    assert topic is not None
    return topic


@asynccontextmanager
async def manager_running(tier: Tier) -> AsyncIterator[None]:
    """Run the copy task, whose next pass is in 30 seconds."""
    task = asyncio.create_task(tier.manager().run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert tier.broker.services.tiered.demand.is_followed
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def copied_to(tier: Tier, offset: int) -> None:
    """Wait until the log is copied up to the offset."""
    end = monotonic() + 20
    while (await tier.offset(-5)).offset < offset:
        assert monotonic() < end, f"copied up to {(await tier.offset(-5)).offset}"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("form", ["batch", "record"])
async def test_a_full_segment_is_copied_without_a_pass(tier: Tier, form: str) -> None:
    async with manager_running(tier):
        await tier.fill(form, **KEPT)
        await copied_to(tier, 79)
    assert len(tier.objects()) >= 2
    assert await tier.read() == tier.sent


async def test_copies_from_the_cache_have_the_bytes_of_redis(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = tier.broker.services
    services.tiered.demand.is_followed = True
    await tier.fill(**KEPT)
    topic, commands = await topic_of(tier), list[Any]()
    from_redis = await Collector(services.store, topic, 0).collect(0, 1 << 30)
    submit = services.store.submit_command

    def noted(*command: Any) -> Any:
        commands.append(command[0])
        return submit(*command)

    with monkeypatch.context() as patch:
        patch.setattr(services.store, "submit_command", noted)
        cache = CopyCache(services.log_reader.cache)
        collector = Collector(services.store, topic, 0, cache)
        from_cache = await collector.collect(0, from_redis.size)
    assert "XRANGE" not in commands and commands
    segments = []
    for writer in (from_redis, from_cache):
        _, parts = await Collector(services.store, topic, 0).finish(writer, "c", 1)
        segments.append(bytes(read_segment(b"".join(parts))[1]))
    assert segments[0] == segments[1] and len(segments[0]) > 2 * SEGMENT
    assert from_cache.records == 120
    assert services.log_reader.cache.hits == services.log_reader.cache.misses == 0


@pytest.mark.parametrize("missing", [0, 3, BATCHES - 1])
async def test_what_the_cache_lacks_is_read_from_redis(tier: Tier, missing: int) -> None:
    services = tier.broker.services
    services.tiered.demand.is_followed = True
    await tier.fill(**KEPT)
    topic, cache = await topic_of(tier), services.log_reader.cache
    cache._batches.drop(topic.id, 0, missing * 10, missing * 10 + 9)
    await tier.move()
    assert (await tier.offset(-5)).offset >= 79
    assert await tier.read() == tier.sent


async def test_batches_of_another_connection_are_not_copied_from_the_cache(tier: Tier) -> None:
    """Another server may lack them."""
    services = tier.broker.services
    services.tiered.demand.is_followed = True
    await tier.fill(**KEPT)
    topic, cache = await topic_of(tier), services.log_reader.cache
    assert cache.has(topic, 0, 0)
    services.store.connection_epoch += 1
    assert not cache.has(topic, 0, 0) and cache.peek(topic, 0, 0, 1 << 20) == []
    await tier.move()
    assert await tier.read() == tier.sent


async def test_a_late_reply_of_another_connection_is_not_cached(tier: Tier) -> None:
    services = tier.broker.services
    services.tiered.demand.is_followed = True
    await tier.broker.create("t", storage_format="batch", offset_mode="dense",
                             remote_storage_enable="true")  # fmt: skip
    topic = await topic_of(tier)
    sending = asyncio.create_task(produce(tier.broker, packed([(0, 1, b"k", b"v", [])], 13)))
    for _ in range(100):
        if services.store._router.for_write("x").pipeline._pending:
            break
        await asyncio.sleep(0)
    services.store.connection_epoch += 1
    assert (await sending).error_code == 0
    assert not services.log_reader.cache.has(topic, 0, 0)
    assert len(services.log_reader.cache._batches) == 0


async def test_copied_batches_leave_the_cache_unless_they_are_read(tier: Tier) -> None:
    services = tier.broker.services
    services.tiered.demand.is_followed = True
    await tier.fill(segment_bytes="300000", segment_ms=str(10**13), **KEPT)
    topic, cache = await topic_of(tier), services.log_reader.cache
    await tier.move()
    end = (await tier.offset(-5)).offset + 1
    assert 0 < end < 120
    assert not cache.has(topic, 0, 0) and cache.has(topic, 0, end)
    assert layout_of(topic).holds_batches and cache.held_bytes > 0


async def test_small_batches_are_not_cached_for_their_copy(
    policy_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_demand, "KEPT_BYTES", 600)
    demand = CopyDemand(lambda: 1 << 20, 1)
    demand.is_followed = True
    assert not demand.appended(policy_topic, 0, 599)
    assert demand.appended(policy_topic, 0, 600)
    assert (await asyncio.wait_for(demand.next(), 5)).pending == 1199


@pytest.fixture
def policy_topic(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(copy_demand, "KEPT_BYTES", 1)

    class Policy:
        remote_storage, remote_copy_disable, copy_lags = True, False, (0, -1)
        segment_bytes = 1000

    class Place:
        id, policy = "a", Policy()

    return Place()


async def test_a_partition_is_due_once_it_has_a_segment(policy_topic: Any) -> None:
    demand = CopyDemand(lambda: 1 << 20, 1)
    assert not demand.appended(policy_topic, 0, 5000), "no task of this process copies"
    demand.is_followed = True
    assert demand.appended(policy_topic, 0, 999) and not demand._due
    assert demand.appended(policy_topic, 0, 1)
    place = await demand.next()
    demand.appended(policy_topic, 0, 1)
    assert (place.number, place.pending) == (0, 1001) and not demand._due, "due once"
    demand.note_copy("a", 0, 1000, 40, 960)
    demand.done(place, is_copied=True)
    assert place.pending == 41 and not demand._due
    assert demand._kept == 41


async def test_a_partition_that_was_not_copied_is_tried_again(
    policy_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_demand, "RETRY_S", 0.001)
    demand = CopyDemand(lambda: 1 << 20, 1)
    demand.is_followed = True
    assert demand.appended(policy_topic, 0, 1000)
    place = await demand.next()
    demand.note_copy("a", 0, 1000, None, 0)
    assert demand._kept == 0
    assert not demand.appended(policy_topic, 0, 1), "the holder of the lease has its own cache"
    demand.done(place, is_copied=False)
    assert await asyncio.wait_for(demand.next(), 5) is place
    demand.note_copy("a", 0, 1001, 10, 991)
    assert demand.appended(policy_topic, 0, 1)


async def test_batches_for_copies_take_half_of_the_cache(policy_topic: Any) -> None:
    demand = CopyDemand(lambda: 10_000, 1)
    demand.is_followed = True
    kept = [demand.appended(policy_topic, number % 4, 700) for number in range(20)]
    assert sum(kept) == 7 and demand._kept == 4900
    demand.forget_except({"b"})
    assert demand._kept == 0 and demand.appended(policy_topic, 0, 700)


async def test_other_processes_append_too(policy_topic: Any) -> None:
    """Until Redis has returned the size: with four processes a quarter of a segment is enough."""
    demand = CopyDemand(lambda: 10_000, 4)
    demand.is_followed = True
    demand.appended(policy_topic, 0, 250)
    place = await demand.next()
    demand.note_copy("a", 0, 1000, 500, 0)
    demand.done(place, is_copied=False)
    assert place.pending == 500


@pytest.mark.parametrize("change", [{"remote_copy_disable": True}, {"copy_lags": (1000, -1)}])
async def test_topics_that_wait_are_left_to_the_pass(
    policy_topic: Any, change: dict[str, Any]
) -> None:
    for name, value in change.items():
        setattr(policy_topic.policy, name, value)
    demand = CopyDemand(lambda: 10_000, 1)
    demand.is_followed = True
    assert not demand.appended(policy_topic, 0, 10_000) and not demand._due


class Memory:
    """A memory budget with a level that tests set."""

    bytes = 1 << 30
    level = 0.1


class Clock:
    """A clock whose sleep returns at once; clients append or read at a rate in that time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rate = 0.0
        self.moved = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.moved += self.rate * seconds


class Case:
    """A pace with a clock, a memory budget and a lag."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
        self.clock, self.memory, self.lag = Clock(), Memory(), 0
        monkeypatch.setattr(copy_demand, "monotonic", self.clock.monotonic)
        monkeypatch.setattr(copy_demand.asyncio, "sleep", self.clock.sleep)
        given = Settings({name.replace("_", "."): value for name, value in settings.items()})
        self.pace = CopyPace(
            lambda: given,
            self.memory,  # type: ignore[arg-type]
            lambda: int(self.clock.moved),
            lambda: self.lag,
        )

    def waited_s(self, size: int, *, is_paced: bool = True) -> float:
        """Copy this many bytes while clients are busy; return the seconds until the next copy."""

        async def copy() -> float:
            await self.clock.sleep(1.0)
            assert self.pace.is_slow in (True, False)  # measures
            self.pace.copied(size)
            before = self.clock.now
            await self.pace.wait(is_paced=is_paced)
            return self.clock.now - before

        return asyncio.run(copy())


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(monkeypatch)


def test_a_copy_waits_for_busy_clients(case: Case) -> None:
    case.clock.rate = 2 * BUSY_BYTES
    assert case.waited_s(int(PACE_BYTES)) == pytest.approx(1.0, abs=0.11)


def test_a_copy_does_not_wait_for_slow_clients(case: Case) -> None:
    case.clock.rate = BUSY_BYTES / 2
    assert case.waited_s(int(PACE_BYTES)) == pytest.approx(0.0, abs=1e-6)


def test_a_wait_ends_when_clients_stop(case: Case) -> None:
    case.clock.rate = 2 * BUSY_BYTES

    async def stop() -> float:
        await case.clock.sleep(1.0)
        assert case.pace.is_slow
        case.pace.copied(int(60 * PACE_BYTES))
        case.clock.rate = 0.0
        before = case.clock.now
        await case.pace.wait(is_paced=True)
        return case.clock.now - before

    assert asyncio.run(stop()) < 0.5


def test_an_urgent_copy_does_not_wait(case: Case) -> None:
    case.clock.rate = 2 * BUSY_BYTES
    assert case.waited_s(int(PACE_BYTES), is_paced=False) == pytest.approx(0.0, abs=1e-6)


def test_a_copy_does_not_wait_once_redis_has_little_room(case: Case) -> None:
    case.clock.rate = 2 * BUSY_BYTES
    case.memory.level = 0.6
    assert case.waited_s(int(PACE_BYTES)) == pytest.approx(0.0, abs=1e-6)


def test_a_copy_without_a_budget_does_not_wait_once_much_is_not_copied(case: Case) -> None:
    case.clock.rate = 2 * BUSY_BYTES
    case.memory.bytes = -1
    assert case.waited_s(int(PACE_BYTES)) > 0.5
    case.lag = MAX_LAG_BYTES
    assert case.waited_s(int(PACE_BYTES)) == pytest.approx(0.0, abs=1e-6)


def test_the_configured_rate_limits_urgent_copies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = {"remote_log_manager_copy_max_bytes_per_second": "1000"}
    assert Case(monkeypatch, **setting).waited_s(3000, is_paced=False) == pytest.approx(3.0)
