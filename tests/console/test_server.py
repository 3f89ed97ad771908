"""Check the connections of the console: a client has a limited time for each step."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from korvet.console.server import CLIENT_S, HandedOver

POST = b"POST /topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"


class Timers:
    """An event loop that notes timers, and runs no task."""

    def __init__(self) -> None:
        self.running: list[tuple[float, Any]] = []

    def call_later(self, seconds: float, action: Any) -> Any:
        row = seconds, action
        self.running.append(row)
        return SimpleNamespace(cancel=lambda: self.running.remove(row))

    def create_task(self, work: Any, **_: Any) -> Any:
        work.close()
        return Mock()


class Transport(asyncio.Transport):
    """A transport without a socket."""

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def connection(timers: Timers) -> HandedOver:
    """A connection of which nothing was read."""

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise AssertionError

    config = uvicorn.Config(app, http=HandedOver, ws="none", lifespan="off", log_config=None)
    config.load()
    loop: Any = timers
    found = HandedOver(config, ServerState(), {}, _loop=loop)
    stalls: Any = SimpleNamespace(
        is_recent=False, alarm=float("inf"), unread_since=0.0, late_before=float("-inf")
    )
    found.stalls = stalls
    return found


def made(connection: HandedOver, first: bytes) -> Transport:
    """Give the connection its transport and the bytes that were read; return the transport."""
    connection.first = first
    transport = Transport()
    connection.connection_made(transport)
    return transport


@pytest.mark.parametrize("first", [POST[:20], POST, POST + b"a="], ids=["head", "body", "rest"])
def test_a_client_that_does_not_end_its_request_is_disconnected(
    connection: HandedOver, timers: Timers, first: bytes
) -> None:
    transport = made(connection, first)
    assert timers.running == [(CLIENT_S, transport.abort)]
    rest = (POST + b"a=12")[len(first) :]
    connection.data_received(rest[:-1])
    assert timers.running == [(CLIENT_S, transport.abort)], "each byte is no new time"
    connection.data_received(rest[-1:])
    assert timers.running == []


def test_a_client_that_does_not_read_its_response_is_disconnected(
    connection: HandedOver, timers: Timers
) -> None:
    transport = made(connection, POST + b"a=12")
    assert timers.running == []
    connection.pause_writing()
    assert timers.running == [(CLIENT_S, transport.abort)]
    connection.resume_writing()
    assert timers.running == []
    connection.pause_writing()
    connection.connection_lost(None)
    assert timers.running == []
