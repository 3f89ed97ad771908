"""Copies that acks asks for are those of what was written, wherever that was."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.errors import ErrorCode as E
from korvet.store.errors import StoreUnavailable
from korvet.store.replica_wait import ReplicaWait
from tests.handlers.conftest import Broker
from tests.handlers.exchanges import packed, produce, rows
from tests.legacy.clients import free_port
from tests.support.redis_servers import server


async def test_another_server_has_no_copy_of_what_the_one_before_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis fails over between a write and the question who has it."""
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
            await node.registration.beat()
            await node.topics.refresh()
            broker = Broker(node)
            await broker.create("t")

            async def ask_another(*args: Any, **wanted: Any) -> bool:
                running.close()
                running.enter_context(server("valkey", *options))
                while True:
                    with suppress(StoreUnavailable):
                        await node.store.command("PING")
                        break
                    await node.store.ready()
                found: bool = await ask(*args, **wanted)
                return found

            assert (await produce(broker, packed(rows(b"a"), 13))).error_code == E.NONE
            await node.copies.close()
            node.copies = ReplicaWait(node.store)
            ask: Callable[..., Any] = node.copies.wait
            monkeypatch.setattr(node.copies, "wait", ask_another)
            answer = await produce(broker, packed(rows(b"b"), 13))
            assert answer.error_code == E.NOT_ENOUGH_REPLICAS_AFTER_APPEND
