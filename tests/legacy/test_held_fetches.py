"""Check the limit on bytes that a broker holds for all Kafka 0.7 clients during a Redis outage."""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
from anyio.lowlevel import checkpoint

from korvet.broker.network.open_connections import OpenConnections
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.legacy import connection
from korvet.legacy.connection import LegacyConnection, PendingBytes
from korvet.wire.records import Buffer
from tests.legacy.wire import message, produce
from tests.support.redis_servers import TestServer

SET = produce("events", message(bytes(10_000)))


class Held(LegacyConnection):
    """A connection whose requests wait until the test sets `stored`."""

    stored: asyncio.Event

    def _begin(self, frame: Buffer) -> Any:
        return self._waits()

    async def _waits(self) -> list[Buffer]:
        await self.stored.wait()
        return []


async def test_clients_that_together_make_much_wait_are_read_no_further_until_it_is_stored(
    valkey_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTED_BYTES", 12 * len(SET))
    config = load({"redis": valkey_server.url, "namespace": "held"}, environ={})
    async with connected(config) as node:
        pending, everybody = PendingBytes(), []
        for _ in range(3):
            one = Held(
                node, OpenConnections(lambda: node.settings), 1 << 20, Mock(), Mock(), pending
            )
            one.stored = asyncio.Event()
            transport = Mock(spec=asyncio.Transport)
            transport.is_closing.return_value = False
            transport.get_extra_info.return_value = ("127.0.0.1", 1)
            one.connection_made(transport)
            everybody.append(one)

        def send(one: Held, times: int) -> int:
            """Send message sets and return how many the connection reads."""
            for at in range(times):
                if not one._reading:
                    return at
                one.get_buffer(0)[: len(SET)] = SET
                one.buffer_updated(len(SET))
            return times

        first, second, third = everybody
        assert send(first, 10) == 10, "a single connection may hold more than its share"
        assert send(second, 10) in (2, 3)
        assert send(third, 10) == 1, "a connection that holds nothing is read"
        first.stored.set()
        while not first.idle:
            await checkpoint()
        assert first._reading and send(first, 2) == 2
        for one in everybody:
            one.stored.set()
        while not all(one.idle for one in everybody):
            await checkpoint()
        assert all(one._reading for one in everybody)
        assert pending.connected == 0
