"""Check retention, and retention.consumed: what groups have committed leaves the log."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from korvet.base.metrics import Metrics
from korvet.broker.background.retention import Retention
from korvet.broker.background.runner import Leases
from korvet.broker.background.tasks import BackgroundTasks
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.groups.consumed import list_held
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.values import Record
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.node import Node
from korvet.topics.table import Topic, TopicTable
from tests.remote_log.recovery.test_restore import commit, node
from tests.remote_log.test_tiered_log import Tier
from tests.support.redis_servers import TestServer


@pytest.fixture
async def tier(valkey_server: TestServer, tmp_path: Path) -> AsyncIterator[Tier]:
    async with node(valkey_server, tmp_path) as tier:
        await tier.broker.services.registration.join()
        yield tier


async def topic_of(tier: Tier) -> Topic:
    found = await tier.broker.services.topics.get("t")
    assert found is not None
    return found


async def run(tier: Tier) -> None:
    await BackgroundTasks(tier.broker.services).retention.remove_consumed(await topic_of(tier))


async def local(tier: Tier) -> int:
    return int((await tier.offset(-4)).offset)


async def test_consumed_records_leave_redis_once_all_groups_have_committed(tier: Tier) -> None:
    await tier.fill("record", retention_consumed="a,b", local_retention_bytes="-2")
    await tier.move()
    tiered = (await tier.offset(-6)).offset
    for offsets, expected in (((), 0), ((50,), 0), ((50, 30), 30), ((50, 20), 30), ((60, 70), 60)):
        for name, offset in zip(("a", "b"), offsets, strict=False):
            await commit(tier, name, offset)
        await run(tier)
        assert await local(tier) == expected, offsets
    await commit(tier, "a", 120)
    await commit(tier, "b", 120)
    await run(tier)
    assert await local(tier) == tiered, "never above the copied offset"
    assert await tier.read() == tier.sent


async def test_local_retention_waits_for_the_groups(tier: Tier) -> None:
    await tier.fill(retention_consumed="a", local_retention_bytes="1")
    await tier.move()
    assert await local(tier) == 0


async def test_every_group_with_a_commit_counts(tier: Tier) -> None:
    await tier.fill("record", retention_consumed="*", local_retention_bytes="-2")
    await tier.move()
    await run(tier)
    assert await local(tier) == 0
    await commit(tier, "one", 40)
    await commit(tier, "two", 25)
    await run(tier)
    assert await local(tier) == 25
    services = tier.broker.services
    assert await list_held(services.store, services.keys, await topic_of(tier)) == [(0, "two", 95)]
    tasks = BackgroundTasks(services)
    await tasks.consumed_gauges.update()
    held = services.metrics.held_records.ask
    assert held is not None and held() == {("t", "0", "two"): 95}


@pytest.mark.parametrize("names", ["*", "queue", "audit,queue"])
async def test_a_share_group_holds_what_it_has_not_finished(tier: Tier, names: str) -> None:
    await tier.fill(
        "record",
        remote_storage_enable="false",
        retention_consumed=names,
        retention_consumed_delete="true",
        local_retention_bytes="-2",
    )
    services, topic = tier.broker.services, await topic_of(tier)
    await services.store.run(services.keys.group_register(group="queue"))
    await commit(tier, "audit", 100)
    place = services.keys.partition("t", 0, topic.id)
    await services.store.run(place.share_reset(group="queue", offset=7))
    await run(tier)
    assert (await tier.offset(-2)).offset == 7
    held = await list_held(services.store, services.keys, topic)
    assert [row[:2] for row in held] == [(0, "queue")]
    await services.store.run(place.share_delete(group="queue"))
    await run(tier)
    assert (await tier.offset(-2)).offset == (100 if names == "*" else 7)


async def test_consumed_records_are_deleted_if_configured(tier: Tier) -> None:
    await tier.fill(
        "record",
        remote_storage_enable="false",
        retention_consumed="a",
        retention_consumed_delete="true",
        local_retention_bytes="-2",
    )
    await run(tier)
    assert (await tier.offset(-2)).offset == 0
    await commit(tier, "a", 33)
    await run(tier)
    assert (await tier.offset(-2)).offset == 33
    assert await tier.read(33) == tier.sent[33:]


async def test_only_the_holder_of_the_lease_removes_what_is_consumed(tier: Tier) -> None:
    await tier.fill("record", retention_consumed="a", local_retention_bytes="-2")
    await tier.move()
    await commit(tier, "a", 33)
    services = tier.broker.services
    other, tasks = Leases(services.store, services.keys, node_id=2), BackgroundTasks(services)
    assert await other.hold("consumed-retention", 60)
    await tasks.retention.remove_all_consumed()
    assert await local(tier) == 0
    await other.release("consumed-retention")
    while await local(tier) == 0:
        await tasks.retention.remove_all_consumed()
    assert await local(tier) == 33
    assert not await other.hold("consumed-retention", 60)


@pytest.mark.parametrize("delete", ["true", "false"])
async def test_a_limit_ends_the_hold_of_a_group(tier: Tier, delete: str) -> None:
    await tier.fill(
        "record",
        retention_consumed="a",
        retention_consumed_max_ms="1000",
        retention_consumed_delete=delete,
        local_retention_bytes="-2",
    )
    await tier.move()
    tiered = (await tier.offset(-6)).offset
    await run(tier)
    assert await local(tier) == (120 if delete == "true" else tiered)
    assert (await tier.offset(-2)).offset == (120 if delete == "true" else 0)
    services = tier.broker.services
    assert await list_held(services.store, services.keys, await topic_of(tier)) == []


async def test_a_group_holds_no_records_that_have_left_redis(tier: Tier) -> None:
    await tier.fill(retention_consumed="a", local_retention_bytes="-2")
    await tier.move()
    services, topic = tier.broker.services, await topic_of(tier)
    await commit(tier, "a", 10)
    assert await list_held(services.store, services.keys, topic) == [(0, "a", 110)]
    call = services.keys.partition("t", 0, topic.id).trim_local(before=60, steps=64)
    await services.store.run(call)
    first = await local(tier)
    assert 10 < first <= 60
    assert await list_held(services.store, services.keys, topic) == [(0, "a", 120 - first)]


@pytest.mark.parametrize(
    "configs",
    [
        {"retention_consumed": "a"},
        {"retention_consumed": "[a,b]"},
        {
            "retention_consumed": "a",
            "retention_consumed_delete": "true",
            "cleanup_policy": "compact",
        },
    ],
)
async def test_a_config_without_effect_is_refused(tier: Tier, configs: Any) -> None:
    with pytest.raises(AssertionError, match=r"retention\.consumed"):
        await tier.broker.create("t", 1, **configs)


async def test_expired_records_are_removed_and_counted(valkey_server: TestServer) -> None:
    keys, settings, metrics = Keys("retention-alone"), Settings({}), Metrics()
    async with await AsyncStore.connect(valkey_server.url, client_name="test") as store:
        log = AsyncKorvet(store=store, namespace=keys.namespace)
        await log.create_topic("t", partitions=1, configs={"retention.ms": "1"})
        await log.produce("t", [Record(b"a"), Record(b"b")])
        await anyio.sleep(0.01)
        topics = TopicTable(store, keys, TopicConfigs(settings))
        leases = Leases(store, keys, node_id=1)
        await Retention(Node(store, keys, topics, lambda: settings, metrics), leases).retain_all()
        assert await store.command("XLEN", keys.partition("t", 0).stream) == 0
    assert metrics.expired_records.values[()] == 2
