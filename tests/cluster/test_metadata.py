"""Check the cluster id, addresses of listeners, and the APIs that return brokers and topics.

These are Metadata, DescribeCluster, DescribeTopicPartitions and DescribeQuorum.
"""

import logging
from typing import Any
from uuid import UUID, uuid4

import pytest

from korvet.base.errors import ErrorCode
from korvet.base.errors import ErrorCode as E
from korvet.broker.server import _join, connected
from korvet.cluster.registration import Endpoint, LiveBroker
from korvet.config.broker_config import load
from korvet.store.errors import StoreUnavailable
from korvet.wire.messages.describe_cluster import DescribeClusterRequest
from korvet.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from korvet.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.schema import ZERO_UUID
from tests.support.connected_broker import Broker
from tests.support.redis_servers import TestServer

TOPIC_OPERATIONS, CLUSTER_OPERATIONS = (
    3576,
    8096,
)  # the response of Apache Kafka 4.3.0 without an authorizer
UNASKED = -(2**31)


async def metadata(
    broker: Broker,
    *names: str | UUID,
    version: int = 13,
    create: bool = False,
    everything: bool = False,
    operations: bool = False,
) -> Any:
    topics = [
        MetadataRequestTopic(name=name)
        if isinstance(name, str)
        else MetadataRequestTopic(name=None, topic_id=name)
        for name in names
    ]
    request = MetadataRequest(
        topics=None if everything else topics,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=operations,
        include_cluster_authorized_operations=operations,
    )
    return await broker.ask(request, version)


@pytest.mark.parametrize("version", range(14))
async def test_topics_are_described_in_every_version(broker: Broker, version: int) -> None:
    await broker.create("t", 3)
    (topic,) = (await metadata(broker, "t", version=version)).topics
    assert (topic.error_code, topic.name, topic.is_internal) == (E.NONE, "t", False)
    assert [row.partition_index for row in topic.partitions] == [0, 1, 2]
    for row in topic.partitions:
        assert (row.error_code, row.leader_id) == (E.NONE, 7)
        assert row.replica_nodes == row.isr_nodes == [7]
    assert (topic.topic_id != ZERO_UUID) == (version >= 10)


@pytest.mark.parametrize("version", [10, 11])
async def test_before_version_12_topics_have_names_and_no_ids(broker: Broker, version: int) -> None:
    await broker.create("t")
    asked = [
        MetadataRequestTopic(name="t"),
        MetadataRequestTopic(name="t", topic_id=UUID(int=7)),
        MetadataRequestTopic(name=None),
    ]
    for wrong in asked[1:]:
        request = MetadataRequest(topics=[asked[0], wrong], allow_auto_topic_creation=True)
        answer = await broker.ask(request, version)
        assert [(row.error_code, row.name, row.topic_id) for row in answer.topics] == [
            (E.INVALID_REQUEST, "t", ZERO_UUID),
            (E.INVALID_REQUEST, wrong.name or "", wrong.topic_id),
        ]
        assert answer.brokers


async def test_no_topic_is_created_whose_name_differs_only_in_dots(broker: Broker) -> None:
    await broker.create("a.b")
    answer = await metadata(broker, "a_b", create=True)
    assert answer.topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    answer = await metadata(broker, "a-b", create=True)
    assert answer.topics[0].error_code == E.NONE


async def test_brokers_and_the_controller_are_named(broker: Broker) -> None:
    await broker.second()
    answer = await metadata(broker)
    assert [(row.node_id, row.host, row.port) for row in answer.brokers] == [
        (7, "me", 9092),
        (8, "other", 9092),
    ]
    assert (answer.cluster_id, answer.controller_id) == ("korvet-cluster-1", 7)


async def test_leaders_are_spread_over_the_live_brokers(broker: Broker) -> None:
    await broker.create("t", 4)
    await broker.second()
    (topic,) = (await metadata(broker, "t")).topics
    assert [row.leader_id for row in topic.partitions] == [7, 8, 7, 8]


@pytest.mark.parametrize(("version", "everything"), [(0, False), (1, True), (13, True)])
async def test_a_request_without_names_returns_all_topics(
    broker: Broker, version: int, everything: bool
) -> None:
    for name in ("b", "a"):
        await broker.create(name)
    answer = await metadata(broker, version=version, everything=everything)
    assert [topic.name for topic in answer.topics] == ["a", "b"]


async def test_an_empty_list_returns_no_topic(broker: Broker) -> None:
    await broker.create("t")
    assert (await metadata(broker, version=1)).topics == []


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("absent", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", E.INVALID_TOPIC_EXCEPTION),
        ("", E.INVALID_TOPIC_EXCEPTION),
        (uuid4(), E.UNKNOWN_TOPIC_ID),
    ],
)
@pytest.mark.parametrize("version", [10, 11, 12, 13])
async def test_what_is_not_there_is_said_so(
    broker: Broker, name: str | UUID, error: E, version: int
) -> None:
    if isinstance(name, UUID) and version < 12:
        error = E.INVALID_REQUEST
    (topic,) = (await metadata(broker, name, version=version)).topics
    assert E(topic.error_code) is error
    assert topic.partitions == []


async def test_a_topic_is_found_by_its_id(broker: Broker) -> None:
    await broker.create("t")
    known = await broker.services.topics.get("t")
    assert known is not None
    (topic,) = (await metadata(broker, known.uuid)).topics
    assert (topic.name, topic.topic_id) == ("t", known.uuid)


async def test_cached_metadata_is_returned_while_redis_is_away(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To clients, a topic without partitions is gone: a group would assign no partitions."""
    await broker.create("t", 3)
    before = (await metadata(broker, "t")).topics

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(broker.services.store, "command", away)
    broker.services.topics.invalidate()
    assert (await metadata(broker, "t")).topics == before
    assert (await metadata(broker, before[0].topic_id)).topics == before
    everything = await metadata(broker, everything=True)
    assert (everything.topics, len(everything.brokers)) == (before, 1)
    (unknown,) = (await metadata(broker, "new", create=True)).topics
    assert (unknown.error_code, unknown.partitions) == (E.LEADER_NOT_AVAILABLE, [])


async def test_a_topic_requested_twice_is_described_once(broker: Broker) -> None:
    await broker.create("t")
    assert len((await metadata(broker, "t", "t")).topics) == 1


@pytest.mark.parametrize(
    ("version", "error"),
    [(0, E.LEADER_NOT_AVAILABLE), (1, E.LEADER_NOT_AVAILABLE), (4, E.NONE), (13, E.NONE)],
)
async def test_a_topic_is_created_by_a_metadata_request(
    broker: Broker, version: int, error: E
) -> None:
    (topic,) = (await metadata(broker, "new", version=version, create=True)).topics
    assert E(topic.error_code) is error
    assert await broker.services.topics.get("new") is not None


async def test_a_topic_is_not_created_where_that_is_forbidden(broker: Broker) -> None:
    dynamic = {"auto.create.topics.enable": "false"}
    broker.services.dynamic_config.settings = broker.services.settings.with_dynamic(dynamic)
    (topic,) = (await metadata(broker, "new", create=True)).topics
    assert topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_operations_are_returned_if_the_request_includes_them(broker: Broker) -> None:
    await broker.create("t")
    answer = await metadata(broker, "t", version=8, operations=True)
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    answer = await metadata(broker, "t", version=8)
    assert answer.cluster_authorized_operations == UNASKED
    assert answer.topics[0].topic_authorized_operations == UNASKED


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described(broker: Broker, version: int) -> None:
    await broker.second()
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await broker.ask(request, version)
    assert answer.error_code == E.NONE
    assert (answer.cluster_id, answer.controller_id) == ("korvet-cluster-1", 7)
    assert [row.broker_id for row in answer.brokers] == [7, 8]
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("kind", "error"), [(2, E.MISMATCHED_ENDPOINT_TYPE), (9, E.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_only_brokers_can_be_described(broker: Broker, kind: int, error: E) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=kind
    )
    answer = await broker.ask(request)
    assert (E(answer.error_code), answer.brokers) == (error, [])


async def page(
    broker: Broker, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """Return name, error and partitions of each topic, and the cursor of the next page."""
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = await broker.ask(request)
    after = answer.next_cursor
    return (
        [
            (row.name, row.error_code, [one.partition_index for one in row.partitions])
            for row in answer.topics
        ],
        after and (after.topic_name, after.partition_index),
    )


async def test_partitions_are_described_page_by_page(broker: Broker) -> None:
    await broker.create("a", 3)
    await broker.create("b", 2)
    assert await page(broker, []) == ([("a", 0, [0, 1, 2]), ("b", 0, [0, 1])], None)
    assert await page(broker, ["b", "a", "a"]) == await page(broker, [])
    assert await page(broker, ["a"], 2) == ([("a", 0, [0, 1])], ("a", 2))
    assert await page(broker, ["a", "b"], 2, ("a", 2)) == (
        [("a", 0, [2]), ("b", 0, [0])],
        ("b", 1),
    )
    assert await page(broker, ["a", "b"], 3) == ([("a", 0, [0, 1, 2])], ("b", 0))
    assert await page(broker, ["a"], 0) == ([("a", 0, [0])], ("a", 1))
    assert await page(broker, ["a", "b"], 5, ("a", 99)) == (
        [("a", 0, []), ("b", 0, [0, 1])],
        None,
    )


async def test_missing_topics_come_last_in_pages(broker: Broker) -> None:
    await broker.create("t", 1)
    rows, after = await page(broker, ["a b", "absent", "t"])
    assert rows == [
        ("t", E.NONE, [0]),
        ("a b", E.INVALID_TOPIC_EXCEPTION, []),
        ("absent", E.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]
    assert after is None


@pytest.mark.parametrize("cursor", [("other", 0), ("t", -1)])
async def test_a_cursor_that_cannot_be_refuses_the_page(
    broker: Broker, cursor: tuple[str, int]
) -> None:
    await broker.create("t", 1)
    assert await page(broker, ["t"], 5, cursor) == ([("t", E.INVALID_REQUEST, [])], None)


@pytest.mark.parametrize("version", range(3))
async def test_the_controller_is_the_only_voter_of_the_quorum(broker: Broker, version: int) -> None:
    await broker.second()
    await broker.create("t")
    request = DescribeQuorumRequest(
        topics=[
            TopicData(topic_name=name, partitions=[PartitionData(partition_index=0)])
            for name in ("__cluster_metadata", "t")
        ]
    )
    answer = await broker.ask(request, version)
    metadata, other = (topic.partitions[0] for topic in answer.topics)
    assert (metadata.error_code, metadata.leader_id) == (E.NONE, 7)
    assert metadata.high_watermark == await broker.services.topics.version() > 0
    assert [row.replica_id for row in metadata.current_voters] == [7]
    assert [row.replica_id for row in metadata.observers] == [8]
    assert other.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


BROKERS = [
    LiveBroker(7, (Endpoint("PLAINTEXT", "in7", 1), Endpoint("OUTSIDE", "out7", 2))),
    LiveBroker(8, (Endpoint("PLAINTEXT", "in8", 1),)),
    LiveBroker(9, (Endpoint("OUTSIDE", "out9", 2), Endpoint("PLAINTEXT", "in9", 1))),
]
SEEN = {
    "PLAINTEXT": {7: ("in7", 1), 8: ("in8", 1), 9: ("in9", 1)},
    "OUTSIDE": {7: ("out7", 2), 9: ("out9", 2)},
}


@pytest.fixture
async def listening(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Return a broker that sees two others, of which one lacks its second listener."""
    await broker.create("t", 6)
    registration = broker.services.registration
    registration.me, registration.brokers, registration.controller = BROKERS[0], BROKERS, 8

    async def reach(host: str, port: int) -> bool:
        return True

    monkeypatch.setattr(broker.services.coordinators, "_is_reachable", reach)
    return broker


def seen(rows: list[Any], id_: str) -> dict[int, tuple[str, int]]:
    return {getattr(row, id_): (row.host, row.port) for row in rows}


@pytest.mark.parametrize(("listener", "controller"), [("PLAINTEXT", 8), ("OUTSIDE", 7)])
async def test_a_client_gets_the_addresses_of_its_listener(
    listening: Broker, listener: str, controller: int
) -> None:
    metadata = await listening.ask(MetadataRequest(topics=None), listener=listener)
    assert seen(metadata.brokers, "node_id") == SEEN[listener]
    leaders = {row.leader_id for row in metadata.topics[0].partitions}
    assert (metadata.controller_id, leaders) == (controller, set(SEEN[listener]))
    cluster = await listening.ask(
        DescribeClusterRequest(include_cluster_authorized_operations=False), listener=listener
    )
    assert seen(cluster.brokers, "broker_id") == SEEN[listener]
    assert cluster.controller_id == controller
    keys = [f"group-{number}" for number in range(30)]
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=keys)
    found = await listening.ask(request, listener=listener)
    assert seen(found.coordinators, "node_id") == SEEN[listener]
    assert {row.error_code for row in found.coordinators} == {ErrorCode.NONE}


async def test_the_quorum_lists_all_listeners_of_the_controller(listening: Broker) -> None:
    listening.services.registration.controller = 9
    quorum = await listening.ask(DescribeQuorumRequest(topics=[]))
    (node,) = quorum.nodes
    assert [(row.name, row.host, row.port) for row in node.listeners] == [
        ("OUTSIDE", "out9", 2),
        ("PLAINTEXT", "in9", 1),
    ]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([], []),
        (["cluster.id=first"], []),
        (
            ["cluster.id=second"],
            [{"id": "first", "given": "second"}],
        ),
    ],
)
async def test_a_broker_with_another_cluster_id_logs_a_warning(
    valkey_server: TestServer,
    caplog: pytest.LogCaptureFixture,
    sets: list[str],
    said: list[dict[str, str]],
) -> None:
    with valkey_server.client() as client:
        client.flushall()
    options = {"redis": valkey_server.url, "listen": "127.0.0.1:0"}
    async with connected(load(options, sets=["cluster.id=first"], environ={})) as node:
        await _join(node, [Endpoint("PLAINTEXT", "h", 1)])
    with caplog.at_level(logging.WARNING, "korvet"):
        async with connected(load(options, sets=sets, environ={})) as node:
            await _join(node, [Endpoint("PLAINTEXT", "h", 1)])
            assert node.registration.cluster_id == "first"
    assert [vars(row)["fields"] for row in caplog.records] == said
