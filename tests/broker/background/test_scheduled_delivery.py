"""Check the task of scheduled records: wake times, one process, broken partitions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from korvet.base.metrics import Gauge
from korvet.broker.background.scheduled_delivery import GAP_S, ScheduledDelivery
from korvet.broker.background.tasks import BackgroundTasks
from korvet.wire.records import Headers
from tests.support.connected_broker import Broker, broker
from tests.support.exchanges import fetch, packed, produce, rows_in

__all__ = ["broker"]

PAST: Headers = [("korvet-deliver-at", b"1000")]


async def create(broker: Broker, name: str = "t") -> None:
    await broker.create(name, delivery_schedule_enable="true", offset_mode="dense")


async def schedule(broker: Broker, headers: Headers, name: str = "t", number: int = 0) -> None:
    data = packed([(0, 0, b"k", b"v", headers)], 13)
    assert (await produce(broker, data, name=name, number=number)).error_code == 0


async def end(broker: Broker, name: str = "t", number: int = 0) -> int:
    """Return the log end offset."""
    return int((await fetch(broker, 0, name=name, number=number)).high_watermark)


@pytest.fixture
async def running(broker: Broker) -> AsyncIterator[ScheduledDelivery]:
    """A running task."""
    delivery = BackgroundTasks(broker.services).scheduled
    task = asyncio.create_task(delivery.run())
    yield delivery
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_waiting_fetch_gets_a_record_when_it_is_due(
    broker: Broker, running: ScheduledDelivery
) -> None:
    await create(broker)
    for delay in (b"30", b"0", b"10"):
        position = await end(broker)
        await schedule(broker, [("korvet-delay-ms", delay)])
        answer = await fetch(broker, position, wait=20_000, least=1)
        assert [row[0] for row in rows_in(answer.records)] == [position]


async def test_a_process_without_the_lease_moves_nothing(broker: Broker) -> None:
    await create(broker)
    await schedule(broker, PAST)
    assert await BackgroundTasks(broker.services).leases.hold("schedule", 60)
    idle = BackgroundTasks(broker.services).scheduled
    assert 0 < await idle.run_once() <= 1
    idle.on_message(b"h0:t:0")
    await idle.run_once()
    assert await end(broker) == 0


async def test_a_process_that_loses_the_lease_forgets_what_is_due(broker: Broker) -> None:
    await create(broker)
    first = BackgroundTasks(broker.services).scheduled
    await schedule(broker, [("korvet-delay-ms", b"60000")])
    await first.run_once()
    assert first._due
    await broker.services.store.command("HDEL", broker.services.keys.cluster(), "lease:schedule")
    assert await BackgroundTasks(broker.services).leases.hold("schedule", 60)
    first._renew_at = 0.0
    await first.run_once()
    assert not first._due and not first._queue


async def test_a_broker_that_stops_leaves_the_lease_to_another(broker: Broker) -> None:
    delivery = BackgroundTasks(broker.services).scheduled
    store, cluster = broker.services.store, broker.services.keys.cluster()
    await delivery.run_once()
    task = asyncio.create_task(delivery.run())
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    ends, _ = (await store.command("HGET", cluster, "lease:schedule")).split()
    seconds, _ = await store.command("TIME")
    assert int(ends) < (int(seconds) + 2) * 1000


async def test_keys_of_a_wrong_type_do_not_stop_other_partitions(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    await create(broker)
    store, keys = broker.services.store, broker.services.keys
    await schedule(broker, PAST, number=0)
    await schedule(broker, PAST, number=1)
    await store.command("SET", keys.partition("t", 0).scheduled_ids, "another client's")
    delivery = BackgroundTasks(broker.services).scheduled
    await delivery.run_once()
    assert (await end(broker, number=0), await end(broker, number=1)) == (0, 1)
    assert "scheduled records not appended, retrying" in caplog.text
    await store.command("DEL", keys.partition("t", 0).scheduled_ids)
    delivery._due[("t", 0)] = 0.0
    delivery._queue.insert(0, (0.0, ("t", 0)))
    await delivery.run_once()
    assert await end(broker, number=0) == 1


async def test_more_records_than_one_call_moves_follow_at_once(broker: Broker) -> None:
    await create(broker)
    rows = [(n, 0, b"k", b"", [("korvet-deliver-at", b"%d" % n)]) for n in range(1200)]
    assert (await produce(broker, packed(rows, 13))).error_code == 0
    delivery = BackgroundTasks(broker.services).scheduled
    waits = [await delivery.run_once() for _ in range(3)]
    assert await end(broker) == 1200
    assert max(waits[:2]) < GAP_S


async def test_a_deleted_topic_is_dropped_from_the_schedule(broker: Broker) -> None:
    await create(broker)
    await schedule(broker, [("korvet-delay-ms", b"60000")])
    delivery = BackgroundTasks(broker.services).scheduled
    await delivery.run_once()
    await broker.made_again()
    delivery.on_message(f"{broker.services.keys.namespace}:t:0".encode())
    await asyncio.sleep(0)
    delivery._called.clear()
    await delivery._move(delivery._ready(float("inf")))
    assert not delivery._due


async def test_metrics_show_what_waits_and_for_how_long_it_is_overdue(broker: Broker) -> None:
    await create(broker)
    await broker.create("other")
    await schedule(broker, PAST, number=0)
    await schedule(broker, [("korvet-delay-ms", b"60000")], number=1)
    tasks, metrics = BackgroundTasks(broker.services), broker.services.metrics
    gauges = tasks.schedule_gauges

    def rows(gauge: Gauge) -> dict[Any, float]:
        assert gauge.ask is not None
        return dict(gauge.ask())

    await gauges.update()
    assert rows(metrics.scheduled_records) == {("t",): 2}
    assert rows(metrics.scheduled_bytes)[("t",)] > 2
    assert rows(metrics.scheduled_overdue_seconds)[("t",)] > 1e9
    await tasks.scheduled.run_once()
    await gauges.update()
    assert rows(metrics.scheduled_records) == {("t",): 1}
    assert rows(metrics.scheduled_overdue_seconds) == {("t",): 0}
    assert metrics.scheduled_appended.values[()] == 1
    gauges.clear()
    assert rows(metrics.scheduled_records) == {}
