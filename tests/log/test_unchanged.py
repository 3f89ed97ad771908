"""Check that background passes leave out partitions that have not changed: commands are counted."""

from typing import Any

import pytest

from korvet.background.compaction import Compaction
from korvet.background.leases import Leases
from korvet.background.tasks import BackgroundTasks
from korvet.log.unchanged import FIELDS, LEAST_PER_S, QUIET_S, Unchanged, pace
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
    tier: Tier,
) -> None:
    broker = tier.broker
    await broker.create("t", partitions=PARTITIONS, remote_storage_enable="true")
    await broker.create("plain", partitions=PARTITIONS)
    manager = tier.manager()
    first = await cost(broker, manager.run_once)
    await manager.run_once()
    idle = await cost(broker, manager.run_once)
    assert idle <= LOOK * PARTITIONS + 10 < first / 3
    assert (await produce(broker, GOOD)).error_code == 0
    moved: list[int] = []
    move = manager.move

    async def noted(topic: Topic, partition: int) -> None:
        moved.append(partition)
        await move(topic, partition)

    manager.move = noted  # type: ignore[method-assign]
    await manager.run_once()
    assert moved == [0]


async def test_a_pass_of_compaction_asks_only_for_the_state_of_unchanged_partitions(
    broker: Broker,
) -> None:
    await broker.create("t", partitions=PARTITIONS, cleanup_policy="compact")
    services = broker.services
    leases = Leases(services.store, services.keys, 7)
    compaction = Compaction(
        services.store, services.keys, services.topics, lambda: services.settings, leases
    )
    first = await cost(broker, compaction.compact_all)
    idle = await cost(broker, compaction.compact_all)
    assert idle <= LOOK * PARTITIONS + 10 < first / 2


async def test_a_scan_for_scheduled_records_is_one_command_for_many_partitions(
    broker: Broker,
) -> None:
    await broker.create("t", partitions=PARTITIONS)
    scheduled = BackgroundTasks(broker.services).scheduled
    assert await cost(broker, scheduled.run_once) < PARTITIONS


@pytest.mark.parametrize(
    ("total", "interval_s", "expected"), [(10, 30.0, LEAST_PER_S), (3000, 30.0, 200.0)]
)
def test_a_large_pass_takes_half_of_its_interval(
    total: int, interval_s: float, expected: float
) -> None:
    assert pace(total, interval_s) == expected


def test_the_state_has_no_field_that_a_pass_without_work_changes() -> None:
    assert not {"copy_lease", "counted", "compacting"} & set(FIELDS)
