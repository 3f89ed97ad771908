"""Check acks: replicas and fsync are those of the Redis server that took the write."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.produce import acks
from korvet.store.errors import StoreUnavailable
from korvet.store.replica_wait import ReplicaWait
from korvet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from korvet.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.connected_broker import Broker
from tests.support.exchanges import packed, produce, rows
from tests.support.ports import free_port
from tests.support.redis_servers import Replicated, TestServer, replicated, server


@pytest.fixture(scope="module")
def pair() -> Iterator[Replicated]:
    with replicated() as running:
        yield running


async def test_a_write_before_a_failover_is_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis fails over between the write and WAITAOF."""
    port = free_port()
    options = ("--port", str(port), "--appendonly", "yes")
    config = load(
        {"redis": f"redis://127.0.0.1:{port}", "node-id": "7", "advertise": "me:9092"},
        sets=["acks.all.fsync=true"],
        environ={},
    )
    with ExitStack() as running:
        running.enter_context(server("valkey", *options))
        async with connected(config) as node:
            await node.registration.heartbeat()
            await node.topics.refresh()
            broker = Broker(node)
            await broker.create("t")

            async def wait_after_failover(*args: Any, **wanted: Any) -> bool:
                running.close()
                running.enter_context(server("valkey", *options))
                while True:
                    with suppress(StoreUnavailable):
                        await node.store.command("PING")
                        break
                    await node.store.ready()
                found: bool = await wait(*args, **wanted)
                return found

            assert (await produce(broker, packed(rows(b"a"), 13))).error_code == E.NONE
            replica_wait = ReplicaWait(node.store)
            wait: Callable[..., Any] = replica_wait.wait
            monkeypatch.setattr(replica_wait, "wait", wait_after_failover)
            monkeypatch.setattr(node.produce, "replica_wait", replica_wait)
            answer = await produce(broker, packed(rows(b"b"), 13))
            assert answer.error_code == E.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            await replica_wait.close()


@pytest.mark.parametrize("setting", ["acks.all.fsync=false", "acks.all.fsync=true"])
async def test_a_decision_waits_for_what_an_append_waits_for(setting: str) -> None:
    """A Redis without an append-only file does no fsync."""
    with server("valkey") as running:
        config = load(
            {"redis": running.url, "node-id": "7", "advertise": "me:9092"},
            sets=[setting],
            environ={},
        )
        async with connected(config) as node:
            decided = node.store.until_durable("k", node.store.run_of("k"))
            if setting.endswith("false"):
                await decided
            else:
                with pytest.raises(StoreUnavailable, match="executed later"):
                    await decided
            await node.replica_wait.close()


@asynccontextmanager
async def broker_of(server: TestServer, *sets: str) -> AsyncIterator[Broker]:
    """Yield a broker that uses the server, without topics."""
    with server.client() as client:
        client.flushall()
    config = load(
        {"redis": server.url, "node-id": "7", "advertise": "me:9092"}, sets=sets, environ={}
    )
    async with connected(config) as node:
        await node.registration.heartbeat()
        await node.topics.refresh()
        yield Broker(node)


async def produced(broker: Broker, *topics: str, acks: int = -1) -> list[E]:
    """Produce a record to each topic with one request; return the errors."""
    data = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=0, records=packed(rows(b"v"), 11))],
        )
        for name in topics
    ]
    request = ProduceRequest(acks=acks, timeout_ms=300, topic_data=data)
    answer = await broker.ask(request, 11)
    return [E(topic.partition_responses[0].error_code) for topic in answer.responses]


async def created(
    broker: Broker, name: str, durability: str, validate_only: bool = False
) -> tuple[E, str]:
    """Create a topic with that durability; return the error and its message."""
    topic = CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name="durability", value=durability)],
    )
    request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    (answer,) = (await broker.ask(request)).topics
    return E(answer.error_code), answer.error_message or ""


async def test_each_topic_of_a_request_has_its_own_durability(pair: Replicated) -> None:
    async with broker_of(pair.master) as broker:
        await broker.create("plain", 1)
        await broker.create("copied", 1, min_insync_replicas="2")
        await broker.create("disk", 1, durability="fsync")
        await broker.create("both", 1, durability="fsync+replicas:1")
        await broker.create("three", 1, min_insync_replicas="3")
        names = "plain", "copied", "disk", "both", "three"
        enough = [E.NONE] * 4
        assert await produced(broker, *names) == [*enough, E.NOT_ENOUGH_REPLICAS]
        assert await produced(broker, *names, acks=1) == [*enough, E.NONE]
        with pair.frozen():
            late = E.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            assert await produced(broker, *names[:4]) == [E.NONE, late, E.NONE, late]


async def test_a_durability_that_redis_cannot_keep_is_refused(pair: Replicated) -> None:
    async with broker_of(pair.master) as broker:
        await broker.create("t", 1)
        refused = "cannot keep durability=replicas:2: 1 of 2 replicas are connected."
        for validate_only in (False, True):
            error, reason = await created(broker, "new", "replicas:2", validate_only)
            assert error == E.INVALID_CONFIG and refused in reason
        for value, error in (
            ("replicas:2", E.INVALID_CONFIG),
            ("replicas:two", E.INVALID_CONFIG),
            ("fsync+replicas:1", E.NONE),
        ):
            config = AlterableConfig(name="durability", config_operation=0, value=value)
            resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
            change = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            (answer,) = (await broker.ask(change)).responses
            assert answer.error_code == error, answer.error_message


@pytest.mark.parametrize(
    ("options", "rule", "reason"),
    [
        ((), (), "its append-only file is off"),
        (("--appendonly", "yes", "--appendfsync", "no"), (), "its appendfsync is no"),
        (("--appendonly", "yes"), (), ""),
        # Without the right to read settings the appends say it.
        (("--appendonly", "yes", "--appendfsync", "no"), ("-config",), ""),
    ],
)
async def test_fsync_is_refused_if_the_server_does_none(
    options: tuple[str, ...], rule: tuple[str, ...], reason: str
) -> None:
    with server("valkey", *options) as running, running.client() as client:
        if rule:
            client.execute_command("ACL", "SETUSER", "default", *rule)
        async with broker_of(running) as broker:
            error, found = await created(broker, "t", "fsync")
            assert reason in found
            assert error == (E.INVALID_CONFIG if reason else E.NONE)
            if rule:
                assert await produced(broker, "t") == [E.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


async def test_a_decision_waits_for_what_its_topics_ask_for(
    pair: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "DECISION_WAIT_MS", 100)
    async with broker_of(pair.master) as broker:
        store = broker.services.store
        await broker.create("plain", 1)
        await broker.create("copied", 1, durability="replicas:1")
        decision = "k", store.run_of("k")
        await store.until_durable(*decision, ["plain", "copied"])
        with pair.frozen():
            await store.until_durable(*decision)
            await store.until_durable(*decision, ["plain", "none"])
            with pytest.raises(StoreUnavailable, match="executed later"):
                await store.until_durable(*decision, ["plain", "copied"])
            # On a cluster a later step may be on another server, and a topic not known yet.
            monkeypatch.setattr(type(store), "is_cluster", True)
            with pytest.raises(StoreUnavailable, match="executed later"):
                await store.until_durable(*decision)


async def test_a_decision_is_not_waited_for_without_enough_replicas() -> None:
    with server("valkey") as running:
        config = load(
            {"redis": running.url, "node-id": "7", "advertise": "me:9092"},
            sets=["acks.all.wait.replicas=1"],
            environ={},
        )
        async with connected(config) as node:
            with pytest.raises(StoreUnavailable, match="not enough replicas"):
                await node.store.until_durable("k", node.store.run_of("k"))
            await node.replica_wait.close()
