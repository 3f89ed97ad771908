"""Check TLS over a socket that sends and receives any portions, and direct writes to a socket."""

import asyncio
import random
import socket
import ssl
from pathlib import Path
from typing import Any, cast

import pytest

from korvet.broker.network.open_connections import OpenConnections
from korvet.broker.network.ordered_connection import LARGE_BYTES, MAX_PARTS, DirectWriter
from korvet.broker.network.tls_stream import CHUNK
from korvet.broker.network.tls_transport import TlsTransport
from korvet.config.values import Settings
from korvet.wire.records import Buffer
from tests.support.certificates import Authority


class Socket:
    """The transport of a socket that takes bytes only when the test lets it."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.protocol: Any = None
        self.high = 0
        self.paused = self.closed = self.aborted = False

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        self.sent += data
        if len(self.sent) > self.high:
            self.protocol.pause_writing()

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def take(self) -> bytes:
        taken = bytes(self.sent)
        self.sent.clear()
        self.protocol.resume_writing()
        return taken

    def get_write_buffer_size(self) -> int:
        return len(self.sent)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default


class Inner(asyncio.BufferedProtocol):
    """The protocol inside, with a small buffer."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.buffer = bytearray(1000)
        self.received = bytearray()
        self.events: list[str] = []
        self.pauses_at: int | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]
        if self.pauses_at is not None and len(self.received) >= self.pauses_at:
            self.pauses_at = None
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


AUTHORITY = Authority.make()


class Pair:
    """A client, its socket, and the broker's protocol of that socket."""

    def __init__(self, folder: Path, **settings: str) -> None:
        settings = {name.replace("_", "."): value for name, value in settings.items()}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(AUTHORITY.sign("broker").write(folder / "broker.pem"))
        self.inner, self.socket = Inner(), Socket()
        buffer = memoryview(bytearray(64 << 10))
        self.connections = OpenConnections(lambda: Settings(settings))
        self.outer = TlsTransport(context, 10.0, lambda _: self.inner, buffer, self.connections)
        self.socket.protocol = self.outer
        self.outer.connection_made(self.socket)  # type: ignore[arg-type]
        self.to, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = ssl.create_default_context(cadata=AUTHORITY.pem)
        self.client = client.wrap_bio(self.to, self.out, server_hostname="localhost")
        while True:
            try:
                self.client.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.give()
                self.to.write(self.socket.take())

    def give(self, data: bytes = b"", portion: int = 60_000) -> None:
        """Let the broker receive the data, in portions of encrypted bytes."""
        if data:
            self.client.write(data)
        sent = self.out.read()
        for at in range(0, len(sent), portion):
            piece = sent[at : at + portion]
            self.outer.get_buffer(-1)[: len(piece)] = piece
            self.outer.buffer_updated(len(piece))

    def take(self) -> bytes:
        """Return what the client can decrypt of the bytes that the socket takes now."""
        self.to.write(self.socket.take())
        found = bytearray()
        while True:
            try:
                data = self.client.read(1 << 20)
            except ssl.SSLWantReadError:
                return bytes(found)
            if not data:
                return bytes(found)
            found += data


@pytest.fixture
async def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@pytest.mark.parametrize("portion", [1, 7, 60_000])
async def test_bytes_arrive_in_any_portions(pair: Pair, portion: int) -> None:
    pair.give()
    data = random.Random(1).randbytes(5000)
    pair.give(data, portion)
    assert pair.inner.received == data


async def test_bytes_that_arrive_with_the_end_of_the_handshake_are_kept(tmp_path: Path) -> None:
    pair = Pair(tmp_path)  # the last message of the client's handshake is not sent yet
    assert pair.inner.transport is None
    pair.give(b"first")
    assert pair.inner.received == b"first"


async def test_parts_of_any_size_are_sent_in_order(pair: Pair) -> None:
    pair.give()
    chance = random.Random(2)
    parts = [chance.randbytes(chance.choice((1, 100, 16_384, 16_385, 90_000))) for _ in range(99)]
    pair.inner.transport.writelines([*parts, b"", memoryview(b"last")])
    found = bytearray()
    while piece := pair.take():
        found += piece
    assert found == b"".join(parts) + b"last"
    assert pair.inner.transport.get_write_buffer_size() == 0


async def test_small_parts_share_a_record(pair: Pair) -> None:
    pair.give()
    pair.take()
    pair.inner.transport.writelines([b"x" * 10] * 100)
    assert 1000 < len(pair.socket.sent) < 1100


async def test_a_client_that_does_not_read_leaves_plain_bytes_unsent(pair: Pair) -> None:
    pair.give()
    pair.inner.transport.set_write_buffer_limits(high=1 << 20)
    pair.inner.transport.write(bytes(4 << 20))
    assert pair.inner.events == ["pause"]
    assert len(pair.socket.sent) < CHUNK * 1.1
    assert pair.inner.transport.get_write_buffer_size() >= 4 << 20
    found = 0
    while piece := pair.take():
        found += len(piece)
    assert (found, pair.inner.events) == (4 << 20, ["pause", "resume"])


async def test_paused_reading_keeps_decrypted_bytes_for_later(pair: Pair) -> None:
    pair.inner.pauses_at = 2000
    pair.give(bytes(9000))
    assert pair.socket.paused
    assert 2000 <= len(pair.inner.received) < 4000
    pair.inner.transport.resume_reading()
    await asyncio.sleep(0)
    assert (len(pair.inner.received), pair.socket.paused) == (9000, False)


async def test_close_sends_what_is_left_and_the_end_of_the_stream(pair: Pair) -> None:
    pair.give()
    pair.inner.transport.write(bytes(1 << 20))
    pair.inner.transport.close()
    assert pair.inner.transport.is_closing()
    pair.inner.transport.write(b"too late")
    found = 0
    while not pair.socket.closed:
        found += len(pair.take())
    found += len(pair.take())
    assert found == 1 << 20
    pair.client.unwrap()  # the broker's end has arrived: it does not wait for it


async def test_the_end_of_the_clients_stream_reaches_the_protocol(pair: Pair) -> None:
    pair.give(b"x")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.give()
    assert pair.inner.events == ["eof"]
    assert pair.socket.closed


async def test_garbage_after_the_handshake_closes_the_connection(pair: Pair) -> None:
    pair.give(b"x")
    pair.outer.get_buffer(-1)[:9] = b"\x17\x03\x03\x00\x04abcd"
    pair.outer.buffer_updated(9)
    assert pair.socket.closed
    pair.outer.connection_lost(None)
    assert pair.inner.events == ["lost"]


async def test_abort_closes_at_once(pair: Pair) -> None:
    pair.give()
    pair.inner.transport.write(bytes(1 << 20))
    pair.inner.transport.abort()
    assert pair.socket.aborted


async def test_a_lost_connection_no_longer_counts_for_its_address(tmp_path: Path) -> None:
    pair = Pair(tmp_path, max_connections="1")
    assert pair.connections.admit("other") == "too many connections"
    pair.outer.connection_lost(None)
    assert pair.connections.admit("other") == ""


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
