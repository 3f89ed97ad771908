"""Check the library on a Redis Cluster, by URL."""

import asyncio
from collections.abc import Iterator

import pytest

from korvet import AsyncKorvet, Korvet, Record
from tests.store.cluster_topology import TestCluster, cluster


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
