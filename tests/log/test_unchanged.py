"""Check that background passes leave out partitions that have not changed: commands are counted."""

import asyncio
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from korvet.broker.background.compaction import AT_ONCE, Compaction
from korvet.broker.background.runner import Leases
from korvet.broker.background.tasks import BackgroundTasks
from korvet.log.unchanged import (
    FIELDS,
    LEAST_PER_S,
    LOOKED_AT,
    QUIET_S,
    WORK,
    WORKED_AT,
    Unchanged,
    pace,
)
from korvet.remote_log.recovery import task
from korvet.topics.table import Topic
from tests.remote_log.test_tiered_log import Tier, tier
from tests.support.connected_broker import Broker
from tests.support.exchanges import GOOD, produce

__all__ = ["tier"]
PARTITIONS = 20
LOOK = 3
"""Commands that ask for a partition's state."""


class Clock:
    """Seconds that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def topic_of(broker: Broker) -> Topic:
    topic = await broker.services.topics.get("t")
    assert topic is not None
    return topic


async def commands(broker: Broker) -> int:
    """Return how many commands Redis has run; those of scripts count."""
    store = broker.services.store
    rows = (await store.command("INFO", "stats")).split(b"\r\n")
    (found,) = [row for row in rows if row.startswith(b"total_commands_processed:")]
    return int(found.split(b":")[1])


async def cost(broker: Broker, work: Any) -> int:
    """Return how many commands the work makes."""
    before = await commands(broker)
    await work()
    return await commands(broker) - before


async def test_a_partition_is_due_again_after_a_change_or_a_tenth_of_its_limit(
    broker: Broker,
) -> None:
    await broker.create("t", partitions=2)
    clock, topic = Clock(), await topic_of(broker)
    unchanged = Unchanged(broker.services.store, broker.services.keys, clock)
    both = [(topic, 0), (topic, 1)]
    assert await unchanged.due(both) == both
    for number in (0, 1):
        unchanged.settle(topic, number, (-1, 60_000))
    assert await unchanged.due(both) == []
    assert (await produce(broker, GOOD, number=1)).error_code == 0
    assert await unchanged.due(both) == [(topic, 1)]
    clock.now += 6
    assert await unchanged.due(both) == both
    unchanged.settle(topic, 0, (-1,))
    clock.now += QUIET_S - 1
    assert await unchanged.due([(topic, 0)]) == []
    clock.now += 1
    assert await unchanged.due([(topic, 0)]) == [(topic, 0)]
    unchanged.settle(topic, 0, ())
    unchanged.keep([])
    assert await unchanged.due([(topic, 0)]) == [(topic, 0)]


async def test_a_foreign_entry_and_other_configs_are_changes(broker: Broker) -> None:
    await broker.create("t", partitions=1, storage_format="record")
    topic = await topic_of(broker)
    unchanged = Unchanged(broker.services.store, broker.services.keys)
    await unchanged.due([(topic, 0)])
    unchanged.settle(topic, 0, ())
    assert await unchanged.due([(topic, 0)]) == []
    await broker.services.store.command(
        "XADD", broker.services.keys.partition("t", 0).stream, "*", "value", "v"
    )
    assert await unchanged.due([(topic, 0)])
    unchanged.settle(topic, 0, ())
    assert await unchanged.due([(topic, 0)]) == []
    await broker.made_again()
    await broker.services.topics.refresh()
    again = await topic_of(broker)
    assert await unchanged.due([(again, 0)])


async def test_a_pass_of_the_remote_log_asks_only_for_the_state_of_unchanged_partitions(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = tier.broker
    configs = {"remote_storage_enable": "true", "retention_ms": "-1"}
    await broker.create("t", partitions=PARTITIONS, **configs)
    await broker.create("plain", partitions=PARTITIONS)
    manager = tier.manager()
    assert await cost(broker, manager.run_once) <= LOOK * PARTITIONS + 20, "there are no records"
    for number in range(PARTITIONS):
        assert (await produce(broker, GOOD, number=number)).error_code == 0
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    fake = SimpleNamespace(sleep=sleep, gather=asyncio.gather)
    monkeypatch.setattr("korvet.remote_log.manager.asyncio", fake)
    first = await cost(broker, manager.run_once)
    assert sum(pauses) == pytest.approx((PARTITIONS + 2 * WORK * WORKED_AT) / LEAST_PER_S)
    await manager.run_once()
    idle = await cost(broker, manager.run_once)
    assert idle <= LOOK * PARTITIONS + 10 < first / 3
    assert (await produce(broker, GOOD)).error_code == 0, "one partition changes"
    moved: list[int] = []
    move = manager.move

    async def noted(topic: Topic, partition: int) -> None:
        moved.append(partition)
        await move(topic, partition)

    manager.move = noted  # type: ignore[method-assign]
    await manager.run_once()
    assert moved == [0]


async def test_a_pass_of_compaction_asks_only_for_the_state_of_unchanged_partitions(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", partitions=PARTITIONS, cleanup_policy="compact")
    services = broker.services
    leases = Leases(services.store, services.keys, 7)
    compaction = Compaction(services.node, leases)
    first = await cost(broker, compaction.compact_all)
    idle = await cost(broker, compaction.compact_all)
    assert idle <= LOOK * PARTITIONS + 10 < first / 2
    await broker.create("u", partitions=2 * LOOKED_AT, cleanup_policy="delete,compact")
    await broker.create("plain", partitions=AT_ONCE)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("korvet.broker.background.compaction.anyio", SimpleNamespace(sleep=sleep))
    await compaction.compact_all()
    assert pauses.count(LOOKED_AT / LEAST_PER_S) == 3, "AT_ONCE is the same number"


async def test_a_scan_for_scheduled_records_is_one_command_for_many_partitions(
    broker: Broker,
) -> None:
    await broker.create("t", partitions=PARTITIONS)
    scheduled = BackgroundTasks(broker.services).scheduled
    assert await cost(broker, scheduled.run_once) < PARTITIONS


async def test_a_snapshot_asks_only_for_the_state_of_unchanged_partitions(tier: Tier) -> None:
    broker = tier.broker
    await broker.create("t", partitions=PARTITIONS)
    writer = BackgroundTasks(broker.services).snapshot_task()
    writer._hurries = True
    first = await cost(broker, writer.write)
    await writer.write()
    idle = await cost(broker, writer.write)
    assert idle <= (LOOK + 1) * PARTITIONS + 30 < first / 2
    assert (await produce(broker, GOOD, number=1)).error_code == 0
    assert await writer.write()
    assert writer._written is not None
    ends = [each.next for each in writer._written.topics["t"].partitions]
    assert ends[1] > 0 and ends[:1] + ends[2:] == [0] * (PARTITIONS - 1)


async def test_a_snapshot_pauses_between_its_commands(tier: Tier) -> None:
    broker = tier.broker
    await broker.create("t", partitions=2 * LOOKED_AT)
    writer, at = BackgroundTasks(broker.services).snapshot_task(), [await commands(broker)]

    async def pause(done: int, total: int) -> None:
        assert (done, total) == (LOOKED_AT, 4 * LOOKED_AT)
        at.append(await commands(broker))

    writer._pause = pause  # type: ignore[method-assign]
    assert await writer.write()
    at.append(await commands(broker))
    assert len(at) == 6
    assert max(later - sooner for sooner, later in pairwise(at)) <= 16 * LOOKED_AT + 30


async def test_a_new_topic_ends_the_pauses_of_a_snapshot(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, rates = tier.broker, list[int]()
    await broker.create("t", partitions=2 * LOOKED_AT)
    writer = BackgroundTasks(broker.services).snapshot_task()
    pause = writer._pause

    def rate(total: int, _interval_s: float) -> float:
        rates.append(total)
        return inf

    async def create(done: int, total: int) -> None:
        await pause(done, total)
        if len(rates) == 2 and not writer._hurries:
            await broker.create("u", partitions=1)

    monkeypatch.setattr(task, "pace", rate)
    writer._pause = create  # type: ignore[method-assign]
    await writer.run_once()
    assert len(rates) == 3, "of 4"
    writer._rests_until = 0.0
    await writer.run_once()
    assert writer._written is not None and "u" in writer._written.topics
    assert len(rates) == 3


@pytest.mark.parametrize(
    ("total", "interval_s", "expected"), [(10, 30.0, LEAST_PER_S), (3000, 30.0, 200.0)]
)
def test_a_large_pass_takes_half_of_its_interval(
    total: int, interval_s: float, expected: float
) -> None:
    assert pace(total, interval_s) == expected


def test_the_state_has_no_field_that_a_pass_without_work_changes() -> None:
    assert not {"copy_lease", "counted", "compacting"} & set(FIELDS)
