"""Check real clients that authenticate, repeatedly on one connection, and their errors."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokens
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from korvet.broker import authentication
from korvet.testing import Broker
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.interop import kafka_python as kp
from tests.support.certificates import Authority
from tests.support.raw_client import Peer
from tests.support.sasl_client import plain
from tests.support.tokens import Issuer, settings

PASSWORDS = {"alice": "s3cret, with = and ü", "bob": "other"}
PASSWORD_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
REAUTH_MS = 1500


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "jwks.json")


@pytest.fixture(scope="module")
def broker(issuer: Issuer) -> Iterator[Broker]:
    with Broker(topics={"t": 1}, settings=settings(issuer.url), users=PASSWORDS) as running:
        yield running


@pytest.fixture(scope="module")
def short_sessions(issuer: Issuer) -> Iterator[Broker]:
    """A broker whose clients must authenticate again."""
    given = {**settings(issuer.url), "connections.max.reauth.ms": str(REAUTH_MS)}
    with Broker(topics={"t": 1}, settings=given, users=PASSWORDS) as running:
        yield running


def confluent(address: str, mechanism: str, issuer: Issuer | None, **more: Any) -> dict[str, Any]:
    common = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        **more,
    }
    if issuer is not None and mechanism == "OAUTHBEARER":
        return {**common, "oauth_cb": lambda _: (issuer.token(), time() + 60)}
    return {
        "sasl.username": "alice",
        "sasl.password": PASSWORDS["alice"],
        **common,
    }


@pytest.mark.parametrize("mechanism", [*PASSWORD_MECHANISMS, "OAUTHBEARER"])
def test_librdkafka_authenticates(broker: Broker, issuer: Issuer, mechanism: str) -> None:
    producer = confluent_kafka.Producer(confluent(broker.bootstrap_servers, mechanism, issuer))
    producer.produce("t", b"x")
    assert producer.flush(20) == 0


@pytest.mark.parametrize("mechanism", [*PASSWORD_MECHANISMS, "OAUTHBEARER"])
def test_kafka_python_authenticates(broker: Broker, issuer: Issuer, mechanism: str) -> None:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return issuer.token()

    producer = kp.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORDS["alice"],
        sasl_oauth_token_provider=Tokens(),
    )
    producer.send("t", b"x").get(20)
    producer.close()


@pytest.mark.parametrize("mechanism", [*PASSWORD_MECHANISMS, "OAUTHBEARER"])
async def test_aiokafka_authenticates(broker: Broker, issuer: Issuer, mechanism: str) -> None:
    class Tokens(AioTokens):  # type: ignore[misc]
        async def token(self) -> str:
            return issuer.token()

    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORDS["alice"],
        sasl_oauth_token_provider=Tokens(),
    )
    await producer.start()
    try:
        await producer.send_and_wait("t", b"x")
    finally:
        await producer.stop()


def test_librdkafka_authenticates_over_tls(tmp_path: Path) -> None:
    authority = Authority.make()
    (tmp_path / "ca.pem").write_text(authority.pem)
    keystore = authority.sign("broker").write(tmp_path / "broker.pem")
    given = {"ssl.keystore.location": str(keystore)}
    with Broker(
        topics={"t": 1}, settings=given, users=PASSWORDS, listeners=("SASL_SSL",)
    ) as broker:
        more = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.endpoint.identification.algorithm": "none",
        }
        producer = confluent_kafka.Producer(
            confluent(broker.bootstrap_servers, "SCRAM-SHA-512", None, **more)
        )
        producer.produce("t", b"x")
        assert producer.flush(20) == 0


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"])
def test_librdkafka_authenticates_again_without_losing_a_record(
    short_sessions: Broker, issuer: Issuer, mechanism: str
) -> None:
    errors: list[Any] = []
    producer = confluent_kafka.Producer(
        confluent(
            short_sessions.bootstrap_servers,
            mechanism,
            issuer,
            error_cb=errors.append,
            **{"linger.ms": 0},
        )
    )
    until, sent, failed = monotonic() + 2 * REAUTH_MS / 1000, 0, []
    while monotonic() < until:
        producer.produce("t", b"x", on_delivery=lambda error, _: error and failed.append(error))
        sent += 1
        producer.poll(0.02)
    assert producer.flush(20) == 0
    assert (errors, failed) == ([], [])
    assert sent > 50


def session(broker: Broker, user: str = "alice") -> tuple[Peer, Any]:
    peer = Peer(broker.bootstrap_servers)
    return peer, authenticate(peer, user)


def authenticate(peer: Peer, user: str, mechanism: str = "PLAIN") -> Any:
    shaken = peer.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism=mechanism))
    assert shaken.error_code == 0
    token = SaslAuthenticateRequest(auth_bytes=plain(user, PASSWORDS[user]))
    return peer.ask("SaslAuthenticate", 2, token)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that allows re-authentication at any time."""
    monkeypatch.setattr(authentication, "MIN_REAUTHENTICATION_S", 0.0)


def test_a_session_ends_unless_its_user_authenticates_again(short_sessions: Broker) -> None:
    peer, first = session(short_sessions)
    late, _ = session(short_sessions)
    with peer, late:
        assert 0 < first.session_lifetime_ms <= REAUTH_MS
        too_soon = peer.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert too_soon.error_code == 34
        sleep(REAUTH_MS / 1000)
        assert authenticate(peer, "alice").error_code == 0
        assert peer.ask("Metadata", 4, MetadataRequest(topics=None)).brokers
        with pytest.raises((EOFError, ConnectionError)):
            late.ask("Metadata", 4, MetadataRequest(topics=None))


@pytest.mark.usefixtures("at_once")
def test_another_user_cannot_take_over_a_connection(short_sessions: Broker) -> None:
    peer, _ = session(short_sessions)
    with peer:
        response = authenticate(peer, "bob")
        assert response.error_code == 58
        assert "principals" in response.error_message
        assert peer.ended()


@pytest.mark.usefixtures("at_once")
def test_a_session_keeps_its_mechanism(short_sessions: Broker) -> None:
    peer, _ = session(short_sessions)
    with peer:
        peer.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
        token = SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc")
        response = peer.ask("SaslAuthenticate", 2, token)
        assert response.error_code == 58
        assert "reauthentication" in response.error_message


def test_a_password_set_through_kafkas_api_is_in_effect_at_once(broker: Broker) -> None:
    address = broker.bootstrap_servers
    admin = AdminClient(confluent(address, "PLAIN", None))
    mechanism = ScramMechanism.SCRAM_SHA_256
    carol = {"user": "carol", "mechanism": mechanism}
    new = UserScramCredentialUpsertion(
        "carol", ScramCredentialInfo(mechanism, 4096), b"first", b"a salt of hers"
    )
    admin.alter_user_scram_credentials([new])["carol"].result(20)
    PASSWORDS["carol"] = "first"
    with Peer(address) as peer:
        assert authenticate(peer, "carol").error_code == 0
    found = admin.describe_user_scram_credentials(["carol"])["carol"].result(20)
    assert [(row.mechanism, row.iterations) for row in found.scram_credential_infos] == [
        (mechanism, 4096)
    ]
    admin.alter_user_scram_credentials([UserScramCredentialDeletion(**carol)])["carol"].result(20)
    with Peer(address) as peer:
        assert authenticate(peer, "carol").error_code == 58
