"""Check addresses of brokers in responses: those of the listener that the client connected to."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.cluster.registration import Endpoint, LiveBroker
from korvet.wire.messages.describe_cluster import DescribeClusterRequest
from korvet.wire.messages.describe_quorum import DescribeQuorumRequest
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from korvet.wire.messages.metadata import MetadataRequest
from tests.support.connected_broker import Broker

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
