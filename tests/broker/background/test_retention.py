"""Check retention with a store, its keys and its topics, without a broker."""

import anyio

from korvet.base.metrics import Metrics
from korvet.broker.background.retention import Retention
from korvet.broker.background.runner import Leases
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.values import Record
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.node import Node
from korvet.topics.table import TopicTable
from tests.support.redis_servers import TestServer


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
