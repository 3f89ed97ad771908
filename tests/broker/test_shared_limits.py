"""Check the limits that connections share, over sockets."""

import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from korvet.testing import Broker
from tests.support.certificates import Authority

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
PRODUCE = struct.pack(">ihhih", 50_000, 0, 9, 7, -1)
"""The start of a Produce request of 50,000 bytes."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    authority = Authority.make()
    settings = {
        "ssl.keystore.location": str(authority.sign("broker").write(tmp_path / "broker.pem")),
        "queued.max.request.bytes": "20000",
        "max.connections": "3",
    }
    with Broker(settings=settings, listeners=["PLAINTEXT", "SSL"]) as broker:
        yield broker


def connect(broker: Broker, listener: str = "PLAINTEXT") -> socket.socket:
    host, port = broker.address(listener).split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def is_served(line: socket.socket) -> bool:
    line.sendall(API_VERSIONS)
    return len(line.recv(10)) > 0


def test_a_request_received_in_part_reserves_its_length(broker: Broker) -> None:
    with connect(broker) as one, connect(broker) as other:
        assert is_served(one)
        assert is_served(other)
        other.recv(1 << 16)  # the rest of that response
        # The broker begins this request, and reads no other while it is not complete.
        one.sendall(API_VERSIONS + PRODUCE + bytes(20_000))
        assert one.recv(10)
        other.sendall(API_VERSIONS)
        other.settimeout(0.2)
        with pytest.raises(TimeoutError):
            other.recv(1)
        one.close()
        other.settimeout(20)
        assert other.recv(10)


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL"])
def test_a_connection_above_the_limit_is_closed_before_any_handshake(
    broker: Broker, caplog: pytest.LogCaptureFixture, listener: str
) -> None:
    with connect(broker, "SSL"), connect(broker, "SSL"), connect(broker) as one:
        assert is_served(one)
        with (
            caplog.at_level(logging.WARNING, "korvet"),
            connect(broker, listener) as refused,
            suppress(ConnectionResetError),
        ):
            assert refused.recv(1) == b""
    (record,) = caplog.records
    assert record.getMessage() == "connection refused"
