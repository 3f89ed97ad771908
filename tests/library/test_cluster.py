"""Check the library on a Redis Cluster, and where Sentinels name the master, by URL."""

import asyncio
from collections.abc import Iterator

import pytest
import redis
from redis.sentinel import Sentinel

from korvet import AsyncKorvet, Consumer, Korvet, KorvetError, Record, StoreError
from korvet.scripts import inlined
from tests.interop.librdkafka import eventually
from tests.store.cluster_topology import TestCluster, cluster
from tests.store.sentinel_topology import watching


@pytest.fixture(scope="module")
def nodes() -> Iterator[TestCluster]:
    """Three masters."""
    with cluster() as running:
        yield running


def test_topics_records_and_groups_live_on_a_cluster(nodes: TestCluster) -> None:
    with Korvet.connect(nodes.url, namespace="sync") as log:
        log.create_topic("orders", 4, {"offset.mode": "dense"})
        log.add_partitions("orders", 6)
        log.produce("orders", [Record(b"%d" % n, key=b"%d" % n) for n in range(60)])
        found = [record.value for number in range(6) for record in log.records("orders", number)]
        assert sorted(found) == sorted(b"%d" % n for n in range(60))
        log.reset("readers", "orders", "earliest")
        assert sum(row.lag for row in log.committed("readers")) == 60
        log.delete_group("readers")
        log.delete_topic("orders")
        assert log.topics() == log.groups() == []


def test_the_asyncio_face_works_on_a_cluster(nodes: TestCluster) -> None:
    async def work() -> list[bytes | None]:
        async with await AsyncKorvet.connect(nodes.url, namespace="async") as log:
            await log.create_topic("orders", 3)
            await log.append("orders", 1, [Record(b"a")])
            return [record.value async for record in log.records("orders", 1)]

    assert asyncio.run(work()) == [b"a"]


def test_partitions_on_a_cluster_know_their_dedupe_ids(nodes: TestCluster) -> None:
    configs = {"offset.mode": "dense", "dedupe.window.ms": "60000"}
    with Korvet.connect(nodes.url, namespace="once") as log:
        log.create_topic("orders", 3, configs)
        log.add_partitions("orders", 6)
        for _ in range(2):
            for number in range(6):
                once = log.append("orders", number, [Record(b"a", dedupe_id="a")])
                assert once.base_offset == 0
        assert once.duplicate
        log.delete_topic("orders")


def test_partitions_on_a_cluster_have_tables(nodes: TestCluster) -> None:
    with Korvet.connect(nodes.url, namespace="tables") as log:
        log.create_topic("stock", 3, {"table.enable": "true"})
        log.add_partitions("stock", 6)
        log.produce("stock", [Record(b"%d" % n, key=b"%d" % n) for n in range(60)])
        stock = log.table("stock")
        assert (stock.count(), stock.get(b"7")) == (60, b"7")
        log.delete_topic("stock")


@pytest.mark.parametrize("has_functions", [False, True])
def test_steps_continue_at_the_master_that_sentinels_name(has_functions: bool) -> None:
    def step(consumer: Consumer) -> bool:
        """Publish a record, and count one and commit it; return False where Redis fails."""
        try:
            with client.pipeline() as pipe:
                pipe.incr("published")
                receipt = log.publish(pipe, "orders", Record(b"a"))
                pipe.execute()
            next(consumer)
            with client.pipeline() as pipe:
                consumer.check(pipe)
                pipe.multi()
                pipe.incr("consumed")
                consumer.commit_with(pipe)
                pipe.execute()
        except (redis.RedisError, StoreError, KorvetError, StopIteration):
            return False
        return receipt.offset >= 0

    with watching() as servers, Korvet.connect(servers.url) as log:
        found = Sentinel([("127.0.0.1", port) for port in servers.sentinels])
        client = found.master_for("themaster", socket_timeout=1)
        if has_functions:
            client.function_load(inlined.steps())
        log.create_topic("orders", 1, {"offset.mode": "dense"})
        with log.consumer("totals", ["orders"], idle_s=1) as consumer:
            assert step(consumer)
            assert client.wait(1, 5000) == 1
            servers.old.kill()
            eventually(lambda: servers.is_master(servers.replica))
            eventually(lambda: step(consumer))
            assert step(consumer)
            (row,) = log.committed("totals")
        stored = len(list(log.records("orders", 0)))
        assert client.mget("published", "consumed") == [b"%d" % stored, b"%d" % (stored - row.lag)]
        client.close()
