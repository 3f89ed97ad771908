"""Check SASL on the wire: the requests that a connection may send, and refused clients."""

import logging
import os
import signal
import struct
from collections.abc import Callable, Iterator
from random import Random
from time import monotonic
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.testing import Broker
from korvet.wire.messages.api_versions import ApiVersionsRequest
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.raw_client import ROWS, Peer, alive, request, until
from tests.support.redis_servers import TestServer
from tests.support.sasl_client import ScramClient, plain

DELAY_S = 0.1
SIZE = 4096
USERS = {"alice": "s3cret", "busy": "b", "bob,=": "pass"}
VERSIONS = request("ApiVersions", 0, ApiVersionsRequest())
METADATA = MetadataRequest(topics=[MetadataRequestTopic(name="t")])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "connection.failed.authentication.delay.ms": str(int(DELAY_S * 1000)),
        "connection.authentication.timeout.ms": "2000",
        "sasl.server.max.receive.size": str(SIZE),
        "max.connections.per.user.overrides": "busy:2",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
    }
    with Broker(
        topics={"t": 1},
        settings=settings,
        users=USERS,
        listeners=("SASL_PLAINTEXT", "PLAINTEXT"),
    ) as running:
        yield running


@pytest.fixture
def peer(broker: Broker) -> Iterator[Peer]:
    with Peer(broker.address("SASL_PLAINTEXT")) as connected:
        yield connected


def handshake(peer: Peer, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return peer.ask("SaslHandshake", version, SaslHandshakeRequest(mechanism=mechanism))


def authenticate(peer: Peer, token: bytes, version: int = 2) -> Any:
    return peer.ask("SaslAuthenticate", version, SaslAuthenticateRequest(auth_bytes=token))


def is_served(peer: Peer) -> bool:
    return bool(peer.ask("Metadata", 4, METADATA).topics)


def test_a_user_with_too_many_connections_is_refused_until_one_leaves(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def code(peer: Peer) -> int:
        handshake(peer)
        answer = authenticate(peer, plain("busy", "b"))
        assert not answer.error_code or "max.connections.per.user" in answer.error_message
        return int(answer.error_code)

    address = broker.address("SASL_PLAINTEXT")
    with Peer(address) as first, Peer(address) as second, Peer(address) as third:
        assert [code(first), code(second), code(third)] == [0, 0, 58]
        assert third.ended() and is_served(first)
        first.socket.close()
        assert until(lambda: code_of_new(address, code) == 0)
    fields = caplog.records[-1].__dict__["fields"]
    assert fields["reason"] == "authentication failed: too many connections of the user"
    assert fields["user"] == "busy"


def code_of_new(address: str, code: Callable[[Peer], int]) -> int:
    with Peer(address) as peer:
        return code(peer)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_authenticates_in_every_version(peer: Peer, version: int) -> None:
    assert authenticate_versions(peer, version).error_code == 0
    assert is_served(peer)


def authenticate_versions(peer: Peer, version: int) -> Any:
    assert handshake(peer).error_code == 0
    return authenticate(peer, plain("alice", "s3cret"), version)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("authorization_id", ["", "bob,="])
def test_scram_authenticates_both_sides(peer: Peer, mechanism: str, authorization_id: str) -> None:
    client = ScramClient(mechanism, "bob,=", "pass", authorization_id=authorization_id)
    assert handshake(peer, mechanism).mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
    first = authenticate(peer, client.first())
    last = authenticate(peer, client.final(first.auth_bytes))
    assert (first.error_code, last.error_code) == (0, 0)
    client.verify(last.auth_bytes)
    assert is_served(peer)


def test_tokens_of_handshake_v0_have_no_header(peer: Peer) -> None:
    handshake(peer, version=0)
    peer.send(plain("alice", "s3cret"))
    assert peer.answer() == b""
    assert is_served(peer)


def test_scram_works_with_tokens_without_a_header(peer: Peer) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "s3cret")
    handshake(peer, "SCRAM-SHA-256", version=0)
    peer.send(client.first())
    peer.send(client.final(peer.answer()))
    client.verify(peer.answer())
    assert is_served(peer)


def test_a_wrong_token_without_a_header_gets_no_answer(peer: Peer) -> None:
    handshake(peer, version=0)
    peer.send(plain("alice", "wrong"))
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.answer()


def test_handshake_token_and_first_request_may_arrive_in_one_packet(peer: Peer) -> None:
    peer.send(
        request("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN")),
        request(
            "SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=plain("alice", "s3cret"))
        ),
        request("Metadata", 4, METADATA),
    )
    assert peer.response(ROWS["SaslHandshake"], 1)[1].error_code == 0
    assert peer.response(ROWS["SaslAuthenticate"], 2)[1].error_code == 0
    assert peer.response(ROWS["Metadata"], 4)[1].topics[0].error_code == 0


def test_api_versions_may_be_repeated_before_the_handshake(peer: Peer) -> None:
    for _ in range(3):
        peer.send(VERSIONS)
        peer.answer()
    assert handshake(peer).error_code == 0


@pytest.mark.parametrize("mechanism", ["scram-sha-256", "GSSAPI", "OAUTHBEARER", ""])
def test_a_mechanism_that_is_not_enabled_is_refused_with_the_list(
    peer: Peer, mechanism: str
) -> None:
    response = handshake(peer, mechanism)
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
    assert peer.ended()


UNAUTHENTICATED = [
    request("Metadata", 4, METADATA),
    request("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=plain("alice", "s3cret"))),
    request("SaslAuthenticate", 0, SaslAuthenticateRequest(auth_bytes=b"")),
    b"\x00",
    b"\x03\xe8\x00\x00\x00\x00\x00\x01\xff\xff",
    plain("alice", "s3cret"),
    b"\x00\x11\x00\x09\x00\x00\x00\x01\xff\xff",
]


@pytest.mark.parametrize("frame", UNAUTHENTICATED)
def test_another_request_before_the_handshake_closes_without_an_answer(
    peer: Peer, frame: bytes
) -> None:
    peer.send(frame)
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.answer()


@pytest.mark.parametrize(
    ("name", "version", "body", "error"),
    [
        ("Metadata", 4, METADATA, lambda found: found.topics[0].error_code),
        ("ApiVersions", 3, ApiVersionsRequest(), lambda found: found.error_code),
        (
            "SaslHandshake",
            1,
            SaslHandshakeRequest(mechanism="PLAIN"),
            lambda found: found.error_code,
        ),
    ],
)
def test_another_request_during_the_exchange_is_an_illegal_state(
    peer: Peer, name: str, version: int, body: Any, error: Callable[[Any], int]
) -> None:
    handshake(peer)
    assert error(peer.ask(name, version, body)) == ErrorCode.ILLEGAL_SASL_STATE
    assert peer.ended()


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "PLAINTEXT"])
def test_sasl_out_of_place_is_an_illegal_state_and_the_connection_stays(
    broker: Broker, listener: str
) -> None:
    with Peer(broker.address(listener)) as peer:
        if listener == "SASL_PLAINTEXT":
            authenticate_versions(peer, 2)
        assert handshake(peer).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert authenticate(peer, b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(peer)


SCRAM_WORDS = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
    "SCRAM-SHA-256"
)
PLAIN_WORDS = "Authentication failed: Invalid username or password"
OTHER_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
REFUSED: list[tuple[str, bytes, str]] = [
    ("PLAIN", plain("alice", "wrong"), PLAIN_WORDS),
    ("PLAIN", plain("nobody", "s3cret"), PLAIN_WORDS),
    ("PLAIN", b"\0\xff\0s3cret", PLAIN_WORDS),
    ("PLAIN", plain("", "s3cret"), "Authentication failed: username not specified"),
    ("PLAIN", plain("alice", ""), "Authentication failed: password not specified"),
    ("PLAIN", plain("alice", "s3cret", "bob"), OTHER_ID),
    ("PLAIN", b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ("PLAIN", b"\0a\0b\0c", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ("SCRAM-SHA-256", b"", SCRAM_WORDS),
    ("SCRAM-SHA-256", b"\xff\xfe", SCRAM_WORDS),
    ("SCRAM-SHA-256", b"n,,n=a=lice,r=abc", SCRAM_WORDS),
    ("SCRAM-SHA-256", b"y,,n=alice,r=abc", SCRAM_WORDS),
    ("SCRAM-SHA-256", b"p=tls-unique,,n=alice,r=abc", SCRAM_WORDS),
    ("SCRAM-SHA-256", b"n,,n=alice,r=", SCRAM_WORDS),
    ("SCRAM-SHA-256", b"n,a=bob,n=alice,r=abc", OTHER_ID),
]


@pytest.mark.parametrize(("mechanism", "token", "words"), REFUSED)
def test_wrong_credentials_are_refused_after_the_delay(
    peer: Peer, mechanism: str, token: bytes, words: str
) -> None:
    handshake(peer, mechanism)
    began = monotonic()
    response = authenticate(peer, token)
    assert monotonic() - began >= DELAY_S
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (response.error_message, response.auth_bytes) == (words, b"")
    assert peer.ended()


@pytest.mark.parametrize(
    ("user", "password", "change"),
    [
        ("alice", "wrong", None),
        ("nobody", "s3cret", None),
        ("alice", "s3cret", (b"c=biws", b"c=eSws")),
        ("alice", "s3cret", (b",p=", b"x,p=")),
        ("alice", "s3cret", (b",p=", b",p=AA==,p=")),
    ],
)
def test_every_wrong_proof_is_refused_in_the_same_words(
    peer: Peer, user: str, password: str, change: tuple[bytes, bytes] | None
) -> None:
    client = ScramClient("SCRAM-SHA-256", user, password)
    handshake(peer, "SCRAM-SHA-256")
    first = authenticate(peer, client.first())
    assert first.error_code == 0
    final = client.final(first.auth_bytes)
    response = authenticate(peer, final.replace(*change) if change else final)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == SCRAM_WORDS
    assert peer.ended()


def test_an_unknown_user_has_the_same_salt_at_each_attempt_and_broker(broker: Broker) -> None:
    def salt(address: str, user: str) -> bytes:
        with Peer(address) as peer:
            handshake(peer, "SCRAM-SHA-256")
            client = ScramClient("SCRAM-SHA-256", user, "x")
            answer = bytes(authenticate(peer, client.first()).auth_bytes)
            return answer.partition(b",s=")[2]

    here = broker.address("SASL_PLAINTEXT")
    assert salt(here, "nobody") == salt(here, "nobody") != salt(here, "none")
    assert len(salt(here, "nobody")) == len(salt(here, "alice"))
    with Broker(redis=broker.redis_url, node_id=1, listeners=("SASL_PLAINTEXT",)) as other:
        assert salt(other.bootstrap_servers, "nobody") == salt(here, "nobody")


@pytest.mark.parametrize("size", [SIZE, SIZE + 1, 0, -1, 2**31 - 1])
def test_a_frame_before_authentication_is_small(peer: Peer, size: int) -> None:
    frame = VERSIONS + bytes(SIZE - len(VERSIONS))
    peer.socket.sendall(struct.pack(">i", size) + frame)
    if size == SIZE:
        assert peer.answer()
    else:
        assert peer.ended()


def test_a_long_request_is_served_after_authentication(peer: Peer) -> None:
    authenticate_versions(peer, 2)
    wanted = [MetadataRequestTopic(name="t" * 200) for _ in range(SIZE // 200 + 1)]
    peer.send(request("Metadata", 4, MetadataRequest(topics=wanted)))
    assert peer.answer()


def test_an_exchange_that_does_not_end_is_closed(broker: Broker) -> None:
    with Peer(broker.address("SASL_PLAINTEXT")) as peer:
        handshake(peer)
        began = monotonic()
        assert peer.ended()
        assert 1 < monotonic() - began < 10


def test_random_frames_end_only_their_connection(broker: Broker) -> None:
    errors: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = errors.append  # type: ignore[method-assign]
    logger = logging.getLogger("korvet.broker")
    logger.addHandler(handler)
    try:
        send_random_frames(broker, 150)
    finally:
        logger.removeHandler(handler)
    assert alive(broker.address("SASL_PLAINTEXT"))
    with Peer(broker.address("SASL_PLAINTEXT")) as peer:
        assert authenticate_versions(peer, 2).error_code == 0
    assert [record.getMessage() for record in errors] == []


def send_random_frames(broker: Broker, times: int) -> None:
    random = Random(7)
    client = ScramClient("SCRAM-SHA-256", "alice", "s3cret")
    tokens = [client.first(), plain("alice", "wrong"), b"n,,\x01auth=Bearer x\x01\x01"]
    for _ in range(times):
        with Peer(broker.address("SASL_PLAINTEXT")) as peer:
            version = random.randrange(2)
            mechanism = random.choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
            if random.random() < 0.8:
                handshake(peer, mechanism, version)
            token = bytearray(random.choice(tokens))
            for _ in range(random.randrange(4)):
                token[random.randrange(len(token))] = random.randrange(256)
            if version:
                token = bytearray(
                    request("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=bytes(token)))
                )
            if random.random() < 0.3:
                token = token[: random.randrange(1, len(token))]
            peer.send(bytes(token))


def test_a_name_of_many_letters_is_refused_at_once(peer: Peer) -> None:
    handshake(peer, "SCRAM-SHA-256")
    name = "=2C" * 1000 + "a"
    client = ScramClient("SCRAM-SHA-256", name.replace("=2C", ","), "x")
    first = authenticate(peer, client.first())
    assert first.error_code == 0
    last = authenticate(peer, client.final(first.auth_bytes))
    assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_without_redis_the_connection_closes_without_an_answer(own_server: TestServer) -> None:
    with Broker(redis=own_server.url, users=USERS) as broker:
        with Peer(broker.bootstrap_servers) as known:
            assert authenticate_versions(known, 2).error_code == 0
        os.kill(own_server.pid, signal.SIGKILL)
        with Peer(broker.bootstrap_servers) as peer:
            handshake(peer)
            with pytest.raises((EOFError, ConnectionError)):
                authenticate(peer, plain("alice", "s3cret"))
