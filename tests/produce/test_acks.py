"""Check acks: replicas and fsync are those of the Redis server that took the write."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.store.errors import StoreUnavailable
from korvet.store.replica_wait import ReplicaWait
from tests.support.connected_broker import Broker
from tests.support.exchanges import packed, produce, rows
from tests.support.ports import free_port
from tests.support.redis_servers import server


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
