"""Check that large responses are written to the socket itself if order and TLS allow it."""

import asyncio
import socket
from typing import Any, cast

import pytest

from korvet.broker.network.ordered_connection import LARGE_BYTES, MAX_PARTS, DirectWriter
from korvet.wire.records import Buffer

PARTS: list[Buffer] = [b"head", memoryview(bytes(range(256)) * 4000), b"", b"tail"]
SIZE = sum(map(len, PARTS))
WHOLE = b"".join(PARTS)


class Transport:
    """A transport of one end of a pair of sockets."""

    def __init__(self, ssl_object: Any = None) -> None:
        self.socket, self.other = socket.socketpair()
        self.socket.setblocking(False)
        self.buffered = 0
        self.is_closed = False
        self.ssl_object = ssl_object

    def get_extra_info(self, name: str) -> Any:
        return {"socket": self.socket, "ssl_object": self.ssl_object}[name]

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def is_closing(self) -> bool:
        return self.is_closed

    def __enter__(self) -> "Transport":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.other.close()


async def writer(transport: Transport) -> DirectWriter:
    """Return a writer in the iteration after the one that made it."""
    found = DirectWriter(cast(asyncio.Transport, transport))
    assert found.write(PARTS, SIZE) == PARTS, "the transport may have earlier bytes"
    await asyncio.sleep(0)
    return found


async def test_what_the_socket_does_not_take_is_returned_in_order() -> None:
    with Transport() as transport:
        direct = await writer(transport)
        received, rest = b"", PARTS
        while rest:
            rest = direct.write(rest, sum(map(len, rest)))
            received += transport.other.recv(SIZE)
        assert received == WHOLE


async def test_a_socket_that_takes_nothing_leaves_all_parts() -> None:
    with Transport() as transport:
        direct = await writer(transport)
        rest = direct.write(PARTS, SIZE)
        assert rest and direct.write(rest, SIZE) == rest


@pytest.mark.parametrize("case", ["buffered", "closing", "tls", "many parts", "broken"])
async def test_nothing_is_written_past_a_transport_that_must_write_it(case: str) -> None:
    with Transport(ssl_object=object() if case == "tls" else None) as transport:
        parts = PARTS
        if case == "buffered":
            transport.buffered = 1
        elif case == "closing":
            transport.is_closed = True
        elif case == "many parts":
            parts = [b"x"] * (MAX_PARTS + 1)
        elif case == "broken":
            transport.other.close()
        assert (await writer(transport)).write(parts, SIZE) == parts
        if case != "broken":
            transport.other.setblocking(False)
            with pytest.raises(BlockingIOError):
                transport.other.recv(1)


async def test_bytes_that_the_transport_has_not_written_come_first() -> None:
    first, second = socket.socketpair()
    with second:
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, sock=first
        )
        direct = DirectWriter(transport)
        await asyncio.sleep(0)
        for _ in range(3):
            transport.write(b"small")
            direct.note_given()
            rest = direct.write(PARTS, SIZE)
            assert rest == PARTS
            await asyncio.sleep(0)
            rest = direct.write(PARTS, SIZE)
            assert rest != PARTS
            received = await asyncio.to_thread(second.recv, 5, socket.MSG_WAITALL)
            assert received == b"small"
            left = SIZE - sum(map(len, rest))
            while left:
                left -= len(second.recv(left))
        transport.close()
        assert direct.write(PARTS, SIZE) == PARTS


async def test_bytes_of_two_iterations_are_both_waited_for() -> None:
    with Transport() as transport:
        direct = await writer(transport)
        asyncio.get_running_loop().call_soon(direct.note_given)
        direct.note_given()
        await asyncio.sleep(0)
        assert direct.write(PARTS, SIZE) == PARTS, "the second bytes are not written"
        await asyncio.sleep(0)
        assert direct.write(PARTS, SIZE) != PARTS
        assert LARGE_BYTES < 1 << 20
