"""Check limits of reads from the remote store: bytes a second, and concurrent reads."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.remote_log import store as segment_store
from korvet.remote_log.known_segments import Footers
from korvet.remote_log.store import ReadLimit, RemoteStorageError, SegmentStore
from korvet.wire.segments import footer_size
from tests.remote_log.test_tiered_log import Tier, tier
from tests.support.exchanges import fetch, rows_in

__all__ = ["tier"]


class Clock:
    """A clock that advances only in sleep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        fake = SimpleNamespace(sleep=self.sleep, Semaphore=asyncio.Semaphore)
        monkeypatch.setattr(segment_store, "asyncio", fake)
        monkeypatch.setattr(segment_store, "monotonic", lambda: self.now)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def test_reads_take_no_more_bytes_a_second_than_the_limit(
    clock: Clock, tmp_path: Path
) -> None:
    rates = [1000]
    store = SegmentStore(f"file://{tmp_path}", limit=ReadLimit(lambda: rates[0]))
    await store.put("a", bytes(10_000))
    began = clock.now
    for at in range(5):
        assert len(await store.get("a", at * 1000, at * 1000 + 1000)) == 1000
    assert clock.now - began == pytest.approx(4), "the first read does not wait"
    rates[0] = 10**9
    await store.get("a", 0, 1000)
    began = clock.now
    await store.get("a", 0, 1000)
    assert clock.now - began < 0.001


async def test_a_read_that_fails_is_charged_too(clock: Clock, tmp_path: Path) -> None:
    store = SegmentStore(f"file://{tmp_path}", limit=ReadLimit(lambda: 1000))
    began = clock.now
    for _ in range(3):
        with pytest.raises(Exception, match="missing"):
            await store.get("missing", 0, 1000)
    assert clock.now - began == pytest.approx(2)


async def test_a_fetch_over_the_limit_has_no_records_and_a_later_one_has_them(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tier.fill()
    await tier.move()
    services = tier.broker.services
    limited = services.settings.with_dynamic(
        {"remote.log.manager.fetch.max.bytes.per.second": "1", "remote.fetch.max.wait.ms": "20"}
    )
    assert services.tiered.segments is not None
    assert rows_in((await fetch(tier.broker, 0)).records)
    monkeypatch.setattr(services.dynamic_config, "settings", limited)
    services.tiered.segments._limit.charge(100)
    answer = await fetch(tier.broker, 0)
    assert answer.error_code == 0 and not rows_in(answer.records)
    assert rows_in((await fetch(tier.broker, (await tier.offset(-4)).offset)).records), "in Redis"
    services.tiered.segments._limit._may_read_at = 0.0
    assert rows_in((await fetch(tier.broker, 0)).records)


async def test_an_object_store_serves_as_many_reads_at_a_time_as_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = SegmentStore("memory:///", limit=ReadLimit(threads=2))
    await store.put("a", bytes(100))
    running, most = 0, 0

    async def slow(*_: Any, start: int, end: int) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _step in range(5):
            await asyncio.sleep(0)
        running -= 1
        return bytes(end - start)

    monkeypatch.setattr("obstore.get_range_async", slow)
    await asyncio.gather(*(store.get("a", n, n + 1) for n in range(10)))
    assert most == 2


async def test_a_read_beyond_those_that_may_wait_is_refused(tmp_path: Path) -> None:
    """The limit is remote.log.reader.max.pending.tasks; Kafka refuses the read, too."""
    store = SegmentStore("memory:///", limit=ReadLimit(threads=2, most_waiting=3))
    await store.put("a", bytes(1000))
    blocked, read = asyncio.Event(), store._get

    async def slow(*words: Any) -> Any:
        await blocked.wait()
        return await read(*words)

    store._get = slow  # type: ignore[method-assign]
    reads = [asyncio.ensure_future(store.get("a", at, at + 10)) for at in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(RemoteStorageError, match=r"2 reads .* in progress and 3 wait"):
        await store.get("a", 0, 10)
    reads.pop().cancel()
    await asyncio.sleep(0)
    blocked.set()
    assert len(await store.get("a", 0, 10)) == 10, "the cancelled read has left the queue"
    assert [len(each) for each in await asyncio.gather(*reads)] == [10] * 4


async def test_a_fetch_that_is_refused_is_a_retriable_error(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tier.fill()
    await tier.move()
    store = tier.use_cache()
    limit = ReadLimit(threads=1, most_waiting=1)
    monkeypatch.setattr(store, "_limit", limit)
    monkeypatch.setattr(store.files, "read_cached", lambda *_: None)
    async with limit.thread():
        waiting = asyncio.create_task(limit._slots.acquire())
        limit.waiting = 1
        answer = await fetch(tier.broker, 0, size=100_000)
        limit.waiting = 0
        waiting.cancel()
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await tier.read() == tier.sent


async def test_footers_take_no_more_memory_than_configured(tier: Tier) -> None:
    """The limit is remote.log.index.file.cache.total.size.bytes."""
    await tier.fill()
    await tier.move()
    store = tier.broker.services.tiered.segments
    assert store is not None
    sizes = dict[str, tuple[int, int]]()
    for path in tier.objects():
        data = path.read_bytes()
        sizes[str(path.relative_to(tier.folder))] = len(data) - footer_size(data), len(data)
    assert len(sizes) >= 3
    for capacity, count in ((1 << 20, len(sizes)), (1, 1)):
        footers = Footers(store, lambda: capacity)  # noqa: B023
        for name, place in sizes.items():
            assert await footers.get(name, *place) is await footers.get(name, *place)
        assert len(footers) == count
        assert footers.size <= max(capacity, 1000)
