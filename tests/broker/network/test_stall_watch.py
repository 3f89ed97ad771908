"""Check when a stall is noticed, and what a connection does with requests that had to wait."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import anyio
import pytest
from anyio.lowlevel import checkpoint

from korvet.broker.connection import Connection
from korvet.broker.network import stall_watch
from korvet.broker.network.open_connections import BEFORE_STALL, OpenConnections
from korvet.broker.network.stall_watch import LATE_S, StallWatch, has_ended
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from korvet.wire.messages.describe_cluster import DescribeClusterRequest
from korvet.wire.messages.leave_group import LeaveGroupRequest
from tests.support.raw_client import batch, request, to_produce
from tests.support.redis_servers import TestServer

MAX_STALL_S = 1.0


class Clock:
    """The time that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stall_watch, "clock", made)
    return made


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a TCP connection: the client's and the broker's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with closing(client), closing(accepted):
            yield client, accepted


def transport(found: object) -> Any:
    return SimpleNamespace(get_extra_info=lambda name: found)


async def test_a_loop_that_ticks_late_enough_has_stalled(clock: Clock) -> None:
    watch, reasons = StallWatch(lambda: MAX_STALL_S), []
    watch.on_stall.append(reasons.append)
    assert not watch.check(clock.now + 1e6), "nothing ticks yet"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        await checkpoint()
        clock.now += MAX_STALL_S - 0.001
        assert not watch.check(clock.now)
        clock.now += 0.001
        assert watch.check(clock.now)
        assert reasons == ["the broker process did not run for 1.0 s"]
        assert not watch.check(clock.now), "a stall is noticed once"
        tasks.cancel_scope.cancel()
    assert not watch.check(clock.now + 1e6), "nothing ticks any more"


async def test_a_pause_below_the_limit_makes_waiting_requests_late(clock: Clock) -> None:
    watch = StallWatch(lambda: MAX_STALL_S)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        await checkpoint()
        assert watch.unread_since == clock.now
        assert watch.unread_since > watch.late_before
        clock.now += LATE_S + 0.2
        assert not watch.check(clock.now)
        assert watch.unread_since < watch.late_before
        tasks.cancel_scope.cancel()


def test_the_end_of_a_connection_is_seen_behind_unread_bytes(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, accepted = pair
    client.sendall(b"a request")
    assert not has_ended(transport(accepted))
    client.close()
    assert has_ended(transport(accepted))
    assert not has_ended(transport(None))


def test_a_connection_that_waited_during_a_stall_is_refused(
    clock: Clock, pair: tuple[socket.socket, socket.socket]
) -> None:
    connections = OpenConnections(lambda: load({"redis": "redis://x"}, environ={}).settings)
    accepted = transport(pair[1])
    assert connections.refuses_old(accepted) == ""
    clock.now = 5000.0
    connections.stalls.ended("the clock was ahead", 3)
    clock.now -= 1
    assert connections.refuses_old(accepted) == BEFORE_STALL
    clock.now += 1
    assert connections.refuses_old(accepted) == "", "it was made after the stall"


class Node:
    """A connection of a broker with a socket, to which a test passes bytes."""

    def __init__(self, services: Any, accepted: socket.socket) -> None:
        self.connections = OpenConnections(lambda: services.settings)
        self.stalls = self.connections.stalls
        self.transport = Mock(spec=asyncio.Transport)
        self.transport.is_closing.return_value = False
        self.transport.get_write_buffer_size.return_value = 0
        self.transport.get_extra_info.side_effect = lambda name, default=None: (
            ("127.0.0.1", 1) if name == "peername" else accepted if name == "socket" else None
        )
        self.connection = Connection(services, self.connections, 1 << 20)
        self.connection.connection_made(self.transport)

    def receive(self, *contents: bytes) -> None:
        data = b"".join(len(each).to_bytes(4, "big") + each for each in contents)
        self.connection.get_buffer(0)[: len(data)] = data
        self.connection.buffer_updated(len(data))


def to_create(name: str) -> bytes:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return request("CreateTopics", 5, CreateTopicsRequest(timeout_ms=1000, topics=[topic]))


async def test_requests_that_waited_are_dropped_if_their_client_has_closed(
    own_server: TestServer, pair: tuple[socket.socket, socket.socket]
) -> None:
    config = load({"redis": own_server.url}, environ={})
    client, accepted = pair
    async with connected(config) as services:
        node = Node(services, accepted)
        node.stalls.late_before = 2.0
        node.stalls.unread_since = 1.0
        node.receive(to_create("kept"))
        while not node.connection.idle:
            await checkpoint()
        client.close()
        unanswered = request("Produce", 9, to_produce("kept", batch([b"v"]), acks=0))
        node.connection._busy = True  # an earlier request is in progress
        leaves = request("LeaveGroup", 1, LeaveGroupRequest(group_id="absent", member_id="m"))
        node.receive(to_create("dropped"), unanswered, leaves, to_create("dropped too"))
        node.connection._release()
        node.connection._begin_requests()
        bounds = services.keys.partition("kept", 0, "").list_offsets()
        while (await services.store.run(bounds)).records == 0:
            await checkpoint()
        await services.topics.refresh()
        assert [topic.name for topic in services.topics] == ["kept"]
        assert services.metrics.late_requests.values == {(): 2}
        while not node.connection.idle:
            await checkpoint()
        assert ("LeaveGroup", "UNKNOWN_MEMBER_ID") in services.metrics.requests.values


async def test_a_request_that_arrives_with_the_end_of_its_connection_changes_nothing(
    own_server: TestServer, pair: tuple[socket.socket, socket.socket]
) -> None:
    """The network held both back; the broker did not stop. Reads are answered."""
    config = load({"redis": own_server.url}, environ={})
    client, accepted = pair
    async with connected(config) as services:
        node = Node(services, accepted)
        node.receive(to_create("kept"))
        while not node.connection.idle:
            await checkpoint()
        client.close()
        leaves = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1)
        reads = DescribeClusterRequest(include_cluster_authorized_operations=False)
        node.receive(
            to_create("late"),
            request("DescribeCluster", 0, reads),
            request("ConsumerGroupHeartbeat", 0, leaves),
        )
        while not node.connection.idle:
            await checkpoint()
        await services.topics.refresh()
        assert [topic.name for topic in services.topics] == ["kept"]
        assert services.metrics.late_requests.values == {(): 1}
        answered = {name for name, _ in services.metrics.requests.values}
        assert answered == {"CreateTopics", "DescribeCluster", "ConsumerGroupHeartbeat"}


async def test_a_stall_ends_requests_in_progress_and_what_was_not_sent_to_redis(
    own_server: TestServer, clock: Clock, pair: tuple[socket.socket, socket.socket]
) -> None:
    config = load({"redis": own_server.url}, environ={})
    async with connected(config) as services, anyio.create_task_group() as tasks:
        node = Node(services, pair[1])
        node.stalls.on_stall.append(services.store.reconnect)
        services.store.before_write = node.stalls.check_now
        tasks.start_soon(node.stalls.run)
        await services.topics.refresh()
        node.receive(to_create("late"))
        clock.now += MAX_STALL_S
        for _ in range(100):
            await checkpoint()
        node.transport.abort.assert_called()
        await services.store.ready()
        await services.topics.refresh()
        assert [topic.name for topic in services.topics] == []
        tasks.cancel_scope.cancel()


async def test_the_registration_compares_the_clock_with_redis(own_server: TestServer) -> None:
    """A paused virtual machine: the time of Redis has passed, that of the broker has not."""
    config = load({"redis": own_server.url}, environ={})
    async with connected(config) as services:
        registration, lapses = services.registration, []
        registration.on_lapse = lambda reason, seconds: lapses.append((reason, round(seconds)))
        await registration.heartbeat()
        await registration.heartbeat()
        assert lapses == []
        began, now_ms = registration._renewed or (0.0, 0)
        registration._renewed = began, now_ms - 15_000
        await registration.heartbeat()
        assert lapses == [("the registration had ended", 15)]
