"""Check that bytes which are no request, and damaged requests, end only their connection.

A connection that is closed has one log line.
"""

import socket
from contextlib import ExitStack
from random import Random

import pytest

from korvet import apis
from korvet.apis import Api
from korvet.base.errors import ErrorCode
from korvet.wire.messages.api_versions import ApiVersionsResponse
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.schema import decode
from tests.interop.brokers import Broker
from tests.support.raw_client import (
    API_VERSIONS,
    ROWS,
    Peer,
    alive,
    crowd,
    parsed,
    request,
    resident,
    to_fetch,
    until,
)
from tests.wire.values import a_message

LIMIT = 104857600
WRONG_LENGTH = "1 to 104857600 are accepted (socket.request.max.bytes)"
ALL_TOPICS = MetadataRequest(topics=None)

REFUSED = [
    ("too long", f"{LIMIT + 1:08x}", "-", "-", f"a frame of {LIMIT + 1} bytes: {WRONG_LENGTH}"),
    (
        "too long with a header",
        f"{LIMIT + 1:08x} 0000 0009 00000001",
        "Produce",
        "9",
        f"a frame of {LIMIT + 1} bytes: {WRONG_LENGTH}",
    ),
    ("negative", "ffffffff", "-", "-", f"a frame of -1 bytes: {WRONG_LENGTH}"),
    ("most negative", "80000000", "-", "-", f"a frame of -2147483648 bytes: {WRONG_LENGTH}"),
    ("zero", "00000000", "-", "-", f"a frame of 0 bytes: {WRONG_LENGTH}"),
    ("garbage", "deadbeefcafe" * 9, "-", "-", f"a frame of -559038737 bytes: {WRONG_LENGTH}"),
    (
        "http",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".hex(),
        "-",
        "-",
        "this is HTTP, and the port speaks Kafka's protocol",
    ),
    (
        "tls",
        "16030100f8010000f40303" + "00" * 40,
        "-",
        "-",
        "this is TLS, and the port speaks Kafka's protocol without TLS",
    ),
    (
        "long without records",
        f"{20 << 20:08x} 0003 0009 00000001",
        "Metadata",
        "9",
        f"a frame of {20 << 20} bytes: 1 to {16 << 20} are accepted",
    ),
    ("one byte", "00000001 00", "-", "-", ""),
    (
        "unknown api",
        "0000000b 03e8 0000 00000001 ffff 00",
        "1000",
        "0",
        "unsupported API or version",
    ),
    (
        "unknown version",
        "0000000b 0003 0063 00000001 ffff 00",
        "Metadata",
        "99",
        "unsupported API or version",
    ),
    (
        "negative api",
        "0000000b ffff 0000 00000001 ffff 00",
        "-1",
        "0",
        "unsupported API or version",
    ),
    (
        "a count above the bytes left",
        "0000000e 0003 0000 00000001 ffff 7fffffff",
        "Metadata",
        "0",
        "topics: a count of 2147483647 where 0 bytes are left",
    ),
    (
        "a client id longer than the frame",
        "0000000a 0003 0000 00000001 7fff",
        "Metadata",
        "0",
        "header: a client id of 32767 bytes where 0 are left",
    ),
    (
        "a half request",
        "0000000c 0003 0000 00000001 ffff 0000",
        "Metadata",
        "0",
        "topics: the data ends here",
    ),
]


def lines_about(broker: Broker, client: str, since: int) -> list[str]:
    """Return the client's log lines after the first `since` characters; ports are reused."""
    return [line for line in broker.log[since:].splitlines() if f"client={client} " in line]


@pytest.mark.parametrize(
    ("text", "api", "version", "reason"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_bytes_that_are_no_request_end_their_connection_with_one_line(
    broker: Broker, text: str, api: str, version: str, reason: str
) -> None:
    since = len(broker.log)
    with Peer(broker.address) as peer, Peer(broker.address) as other:
        peer.socket.sendall(bytes.fromhex(text))
        assert peer.ended()
        (line,) = lines_about(broker, peer.name, since)
        assert "level=warning" in line and 'event="connection closed"' in line
        assert f" api={api} version={version} " in line
        assert reason in line.partition("reason=")[2]
        other.ask("Metadata", 9, ALL_TOPICS)


def test_half_a_frame_and_then_nothing_is_one_line_too(broker: Broker) -> None:
    content = request("Metadata", 9, ALL_TOPICS)
    framed = len(content).to_bytes(4, "big") + content
    for end in (2, 4, 9, len(framed) - 1):
        since = len(broker.log)
        with Peer(broker.address) as peer:
            peer.socket.sendall(framed[:end])
            peer.socket.shutdown(socket.SHUT_WR)
            assert peer.ended()
            (line,) = lines_about(broker, peer.name, since)
        assert (" api=Metadata version=9 " in line) == (end >= 9)
        assert 'reason="the client ended the stream inside a frame"' in line


def test_a_frame_of_one_byte_behind_a_large_fetch_is_one_line_too(broker: Broker) -> None:
    since = len(broker.log)
    with Peer(broker.address) as peer:
        peer.send(request("Fetch", 11, to_fetch("absent", max_wait_ms=100)), b"\0")
        assert peer.ended()
        (line,) = lines_about(broker, peer.name, since)
    assert "header: the data ends here" in line


def test_requests_before_a_half_frame_are_still_answered(broker: Broker) -> None:
    with Peer(broker.address) as peer:
        peer.send(request("Metadata", 9, ALL_TOPICS, correlation_id=77))
        peer.socket.sendall(b"\0\0")
        peer.socket.shutdown(socket.SHUT_WR)
        assert peer.response(ROWS["Metadata"], 9)[0] == 77
        assert peer.ended()


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(
    broker: Broker, version: int
) -> None:
    with Peer(broker.address) as peer:
        peer.send(bytes.fromhex(f"0012 {version & 0xFFFF:04x} 00000009 ffff 00 01 02"))
        correlation_id, found = parsed(peer.answer(), ROWS["ApiVersions"], 0)
        assert correlation_id == 9
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
        served = {row.api_key: (row.min_version, row.max_version) for row in found.api_keys}
        assert served == {row.key: row.versions for row in ROWS.values()}
        peer.send(API_VERSIONS)
        assert decode(ApiVersionsResponse, peer.answer(), 0, 4).error_code == 0


def test_requests_that_come_byte_by_byte_are_answered(broker: Broker) -> None:
    content = request("Metadata", 9, ALL_TOPICS, correlation_id=5)
    framed = len(content).to_bytes(4, "big") + content
    with Peer(broker.address) as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            for at in range(len(framed)):
                peer.socket.sendall(framed[at : at + 1])
            assert peer.response(ROWS["Metadata"], 9)[0] == 5


def test_random_bytes_on_many_connections_do_not_affect_others(broker: Broker) -> None:
    random = Random(20)
    with Peer(broker.address) as other:
        for _ in range(150):
            with Peer(broker.address) as peer:
                peer.socket.sendall(random.randbytes(random.choice((1, 7, 64, 3000, 200_000))))
            other.ask("Metadata", 9, ALL_TOPICS)


def test_a_frame_of_tiny_elements_is_refused_before_it_becomes_much_memory(broker: Broker) -> None:
    count = 7_000_000
    content = bytes.fromhex("0003 0000 00000001 ffff") + count.to_bytes(4, "big") + bytes(2 * count)
    before, since = resident(broker.pid), len(broker.log)
    with Peer(broker.address) as peer:
        peer.send(content)
        assert peer.ended()
        (line,) = lines_about(broker, peer.name, since)
    assert "topics: more elements than any request has" in line
    assert resident(broker.pid) - before < 64 << 20


def test_announcing_much_on_many_connections_costs_no_memory(broker: Broker) -> None:
    before = resident(broker.pid)
    with crowd(broker.address, 100) as peers:
        for peer in peers:
            head = bytes.fromhex("0000 0009 00000001 ffff")
            peer.socket.sendall(LIMIT.to_bytes(4, "big") + head)
        assert alive(broker.address)
        assert resident(broker.pid) - before < 16 << 20


def test_three_hundred_idle_connections_use_little_memory(broker: Broker) -> None:
    assert alive(broker.address)
    before = resident(broker.pid)
    with crowd(broker.address, 300) as peers:
        for peer in peers:
            peer.send(API_VERSIONS)
        for peer in peers:
            peer.answer()
        assert resident(broker.pid) - before < 300 * 32 * 1024
        for peer in peers:
            peer.ask("Metadata", 9, ALL_TOPICS)


def test_a_client_id_cannot_break_a_log_line(broker: Broker) -> None:
    since = len(broker.log)
    with Peer(broker.address) as peer:
        name = 'x\nlevel=error event="forged" \x1b[2J'
        broken = request("Metadata", 9, ALL_TOPICS, client_id=name)[:-3]
        peer.send(broken)
        assert peer.ended()
        (line,) = lines_about(broker, peer.name, since)
    assert "\x1b" not in line and "client_id=" in line
    assert not any(row.startswith("level=error") for row in broker.log.splitlines())


def test_the_memory_of_half_frames_is_freed_with_their_connections(broker: Broker) -> None:
    before = resident(broker.pid)
    with crowd(broker.address, 4) as peers:
        for peer in peers:
            head = (50 << 20).to_bytes(4, "big") + bytes.fromhex("0000 0009 00000001 ffff")
            peer.socket.sendall(head + bytes(4 << 20))
    assert until(lambda: resident(broker.pid) - before < 16 << 20)


ROUNDS = 12
NONE = MetadataRequest(topics=[])
WILD = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\0",
    b"\x80\0",
    b"\xff" * 9,
    b"\0",
    b"\x7f",
)


def damaged(content: bytes, random: Random) -> bytes:
    """Return the content with 1 to 3 random changes after API and version."""
    found = bytearray(content)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(4, len(found) + 1)
        how = random.randrange(4)
        if how == 0:
            wild = random.choice(WILD)
            found[at : at + len(wild)] = wild
        elif how == 1:
            del found[at : at + random.randrange(1, 8)]
        elif how == 2:
            found[at:at] = random.randbytes(random.randrange(1, 8))
        elif at < len(found):
            found[at] ^= 1 << random.randrange(8)
    return bytes(found)


@pytest.mark.parametrize("row", apis.TABLE, ids=lambda row: row.name)
def test_no_damaged_request_harms_the_broker(broker: Broker, row: Api) -> None:
    random = Random(f"fuzz {row.name}")
    before = resident(broker.pid)
    with ExitStack() as peers:
        other = peers.enter_context(Peer(broker.address))
        for version in range(row.versions[0], row.versions[1] + 1):
            for turn in range(ROUNDS):
                body = a_message(row.request, version, random, mild=turn % 2 == 0)
                content = request(row.name, version, body)
                peer = peers.enter_context(Peer(broker.address))
                peer.send(damaged(content, random) if turn else content)
            assert other.ask("Metadata", 9, NONE, "other").topics == []
    assert resident(broker.pid) - before < 64 << 20
    assert "request handler failed" not in broker.log
