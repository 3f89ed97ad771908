"""Check topics that are tiered by the broker's default."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from time import time
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.config.setting import StartError
from korvet.config.topic_policy import Pattern, TopicConfigs
from korvet.config.values import Settings
from korvet.library.async_korvet import AsyncKorvet
from korvet.log.read_result import ReadRequest
from korvet.log.reader import LogReader
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection
from korvet.spark.partitions import partitions_of
from korvet.topics import lifecycle
from korvet.topics.lifecycle import delete_topic
from korvet.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.remote_log.test_tiered_log import Tier
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch, packed, produce
from tests.support.redis_servers import TestServer

_namespaces = itertools.count()
ON = {
    "remote.log.storage.system.enable": "true",
    "remote.storage.url": "memory:///",
    "log.remote.storage.enable": "true",
}
REMOTE = "remote.storage.enable"


@pytest.fixture
async def tier(valkey_server: TestServer, tmp_path: Path) -> AsyncIterator[Tier]:
    options = {"redis": valkey_server.url, "namespace": f"default{next(_namespaces)}"}
    settings = {**ON, "remote.storage.url": f"file://{tmp_path}"}
    sets = [f"{name}={value}" for name, value in settings.items()]
    async with connected(load(options, sets=sets, environ={})) as services:
        await services.registration.join()
        await services.tiered.publish()
        await services.topics.refresh()
        yield Tier(Broker(services), tmp_path)


@pytest.mark.parametrize(
    ("explicit", "is_remote"),
    [
        ({}, True),
        ({"cleanup.policy": ""}, True),
        ({"cleanup.policy": "compact"}, False),
        ({"cleanup.policy": "compact,delete"}, False),
        ({"offset.mode": "bytes"}, False),
        ({REMOTE: "false"}, False),
    ],
)
@pytest.mark.parametrize("given_by", ["broker", "pattern"])
def test_the_default_applies_to_topics_that_can_be_copied(
    explicit: dict[str, str], is_remote: bool, given_by: str
) -> None:
    on = {**ON, "log.remote.storage.enable": str(given_by == "broker").lower()}
    pattern = Pattern("*", {REMOTE: "true"})
    configs = TopicConfigs(Settings(on), [pattern] if given_by == "pattern" else [])
    assert configs.policy("t", explicit).remote_storage is is_remote
    assert configs.resolve("t", explicit)[REMOTE].value == str(is_remote).lower()
    assert configs.find_conflict("t", explicit) is None


def test_the_default_has_no_effect_without_a_remote_store() -> None:
    configs = TopicConfigs(Settings({"log.remote.storage.enable": "true"}))
    assert not configs.policy("t", {}).remote_storage
    assert configs.resolve("t", {})[REMOTE].is_default
    assert configs.find_conflict("t", {}) is None
    assert "disabled in the broker" in str(configs.find_conflict("t", {REMOTE: "true"}))


def test_an_explicit_value_is_refused_as_in_kafka() -> None:
    configs = TopicConfigs(Settings(ON))
    refused = configs.find_conflict("t", {REMOTE: "true", "cleanup.policy": "compact"})
    assert "only supports topics with cleanup.policy=delete" in str(refused)
    assert configs.find_conflict("t", {REMOTE: "true", "offset.mode": "bytes"})


async def test_a_topic_without_configs_is_copied_and_read(tier: Tier) -> None:
    await tier.fill(remote_storage_enable=None)
    resource = DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=[REMOTE]
    )
    answer = await tier.broker.ask(DescribeConfigsRequest(resources=[resource]))
    [row] = answer.results[0].configs
    assert (row.value, row.config_source) == ("true", 4)
    await tier.move()
    assert tier.objects()
    assert await tier.read() == tier.sent


@pytest.mark.parametrize("in_steps", [False, True])
async def test_the_objects_of_a_deleted_topic_are_deleted(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, in_steps: bool
) -> None:
    await tier.fill(remote_storage_enable=None)
    await tier.move()
    if in_steps:
        monkeypatch.setattr(lifecycle, "AT_ONCE", 0)
    services, now_ms = tier.broker.services, int(time() * 1000)
    topic = await services.topics.get("t")
    assert topic is not None and tier.objects()
    await delete_topic(services.store, services.keys, topic)
    services.topics.invalidate()
    await tier.manager().delete_objects(now_ms + 61_000)
    assert tier.objects() == []


async def test_they_are_deleted_too_if_tiered_storage_was_switched_off_meanwhile(
    tier: Tier,
) -> None:
    await tier.fill(remote_storage_enable=None)
    await tier.move()
    services = tier.broker.services
    services.topics.use_configs(TopicConfigs(Settings()))
    topic = await services.topics.get("t")
    assert topic is not None and not topic.policy.remote_storage
    await delete_topic(services.store, services.keys, topic)
    assert await services.store.command("ZCARD", services.keys.deleted_topics()) == 1


async def test_segments_are_read_and_expire_if_the_default_was_switched_off_meanwhile(
    tier: Tier,
) -> None:
    await tier.fill(remote_storage_enable=None)
    await tier.move()
    services = tier.broker.services
    off = Settings({**ON, "log.remote.storage.enable": "false"})
    services.topics.use_configs(TopicConfigs(off))
    topic = await services.topics.get("t")
    assert topic is not None and not topic.policy.remote_storage
    await tier.manager().run_once()
    assert await tier.read() == tier.sent
    count, cold = len(tier.objects()), (await tier.offset(-4)).offset
    services.topics.use_configs(TopicConfigs(off, [Pattern("t", {"retention.bytes": "1"})]))
    await tier.manager().run_once()
    assert 0 < (await tier.offset(-2)).offset <= cold
    assert len(tier.objects()) < count


async def test_a_topic_that_was_never_copied_leaves_no_id(tier: Tier) -> None:
    await tier.fill(cleanup_policy="compact", remote_storage_enable=None)
    services = tier.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    await delete_topic(services.store, services.keys, topic)
    assert await services.store.command("ZCARD", services.keys.deleted_topics()) == 0


async def test_cold_records_are_an_error_on_a_broker_without_the_store(
    tier: Tier, valkey_server: TestServer
) -> None:
    await tier.fill()
    await tier.move()
    options = {"redis": valkey_server.url, "namespace": tier.broker.services.keys.namespace}
    async with connected(load({**options, "node-id": "8"}, sets=[], environ={})) as services:
        await services.topics.refresh()
        answer = await fetch(Broker(services), 0)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("mode", ["dense", "time"])
async def test_a_hot_read_is_one_round_trip(tier: Tier, form: str, mode: str) -> None:
    broker, store = tier.broker, tier.broker.services.store
    await broker.create("t", partitions=1, storage_format=form, offset_mode=mode)
    rows: list[Any] = [(n, 1000 + n, b"k", b"value", []) for n in range(100)]
    await produce(broker, packed(rows, 13))
    reader, topic = LogReader(store), await broker.services.topics.get("t")
    reader.remote = broker.services.log_reader.remote
    assert topic is not None and topic.policy.remote_storage
    first = (await tier.offset(-2)).offset
    await reader.read(ReadRequest(topic, 0, first, 1 << 20))
    for offset in (first, (await tier.offset(-1)).offset):
        before = store.round_trips
        await reader.read(ReadRequest(topic, 0, offset, 1 << 20))
        assert store.round_trips - before == 1


@pytest.mark.parametrize(("cleanup", "is_remote"), [("delete", True), ("compact", False)])
async def test_spark_and_the_library_know_the_brokers_default(
    tier: Tier, valkey_server: TestServer, cleanup: str, is_remote: bool
) -> None:
    await tier.fill(cleanup_policy=cleanup, remote_storage_enable=None)
    namespace = tier.broker.services.keys.namespace
    with MetadataClient(Connection(valkey_server.url, namespace)) as metadata:
        assert [each.is_remote for each in partitions_of(metadata.topic("t"))] == [is_remote]
    async with await AsyncKorvet.connect(valkey_server.url, namespace=namespace) as log:
        assert (await log.find_topic("t")).policy.remote_storage is is_remote


async def test_a_broker_with_a_store_that_cannot_be_opened_does_not_start(
    valkey_server: TestServer,
) -> None:
    sets = ["remote.log.storage.system.enable=true", "remote.storage.url=ftp://host/x"]
    options = {"redis": valkey_server.url, "namespace": "unopened", "advertise": "me:9092"}
    with pytest.raises(StartError, match=r"^remote\.storage\.url ftp://host/x: cannot be opened"):
        async with connected(load(options, sets=sets, environ={})):
            pass
