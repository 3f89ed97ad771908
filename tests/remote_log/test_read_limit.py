"""Limits of reads from the remote store: bytes a second, and reads at a time."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from korvet.remote_log import read_limit
from korvet.remote_log.read_limit import ReadLimit
from korvet.remote_log.store import SegmentStore
from tests.remote_log.test_tiered_log import Tier, tier
from tests.support.exchanges import fetch, told

__all__ = ["tier"]


class Clock:
    """A time that passes only in sleep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        fake = SimpleNamespace(sleep=self.sleep, Semaphore=asyncio.Semaphore)
        monkeypatch.setattr(read_limit, "asyncio", fake)
        monkeypatch.setattr(read_limit, "monotonic", lambda: self.now)

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
    assert told((await fetch(tier.broker, 0)).records)
    monkeypatch.setattr(services.dynamic_config, "settings", limited)
    services.tiered.segments._limit.charge(100)
    answer = await fetch(tier.broker, 0)
    assert answer.error_code == 0 and not told(answer.records)
    assert told((await fetch(tier.broker, (await tier.offset(-4)).offset)).records), "in Redis"
    services.tiered.segments._limit._may_read_at = 0.0
    assert told((await fetch(tier.broker, 0)).records)


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
