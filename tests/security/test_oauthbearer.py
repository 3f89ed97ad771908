"""Check which tokens are accepted, and changes of keys while a broker runs."""

import base64
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.config.setting import StartError
from korvet.config.values import Settings
from korvet.security.oauthbearer import TokenRefused, TokenValidator
from korvet.testing import Broker
from korvet.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.raw_client import Peer
from tests.support.sasl_client import bearer
from tests.support.tokens import ISSUER, Issuer, settings

NOW = int(time.time())


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "jwks.json")


@pytest.fixture(scope="module")
def validator(issuer: Issuer) -> TokenValidator:
    return TokenValidator.of(Settings(settings(issuer.url)), clock=lambda: NOW)


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"aud": ["x", "korvet"]},
    {"scope": None},
    {"scope": ["a", "b"]},
    {"iat": NOW + 500},
    {"exp": NOW - 10},
    {"nbf": NOW + 10},
    {"sub": "Ärger, mit = Komma"},
    {"header": {"kid": None}},
    {"header": {"alg": "PS256"}},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"exp": None}, "exp is not a time"),
    ({"exp": "soon"}, "exp is not a time"),
    ({"exp": 1e300}, "exp is not a time"),
    ({"exp": True}, "exp is not a time"),
    ({"exp": NOW - 40}, "expired"),
    ({"iat": None}, "iat is not a time"),
    ({"nbf": NOW + 120}, "not valid yet"),
    ({"iss": None}, "another issuer"),
    ({"iss": ISSUER + "/"}, "another issuer"),
    ({"iss": [ISSUER]}, "another issuer"),
    ({"aud": None}, "another audience"),
    ({"aud": "korve"}, "another audience"),
    ({"aud": ["korvet", 7]}, "aud is not text"),
    ({"sub": None}, "no sub"),
    ({"sub": " "}, "no sub"),
    ({"sub": 7}, "no sub"),
    ({"scope": 7}, "scope is not text"),
    ({"header": {"kid": "unknown"}}, "no key of the set verifies it"),
]


@pytest.mark.parametrize("changes", ACCEPTED)
async def test_a_token_of_the_issuer_is_accepted(
    issuer: Issuer, validator: TokenValidator, changes: dict[str, Any]
) -> None:
    identity = await validator.validate(issuer.token(**{"user": "alice", **changes}))
    assert identity.user == changes.get("sub", "alice")


@pytest.mark.parametrize(("changes", "reason"), REFUSED)
async def test_another_token_is_refused(
    issuer: Issuer, validator: TokenValidator, changes: dict[str, Any], reason: str
) -> None:
    token = issuer.token(**changes)
    with pytest.raises(TokenRefused, match=reason):
        await validator.validate(token)


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def forged(issuer: Issuer) -> Iterator[str]:
    head, body, signature = issuer.token().split(".")
    yield f"{_part({'alg': 'none'})}.{body}."
    yield f"{_part({'alg': 'none', 'kid': 'one'})}.{body}.{signature}"
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    yield f"{head}.{_part({**claims, 'sub': 'admin'})}.{signature}"
    yield f"{head}.{body}.{signature[:-8]}"
    yield f"{head}.{body}."
    yield f"{head}.{body}"
    yield "x"
    yield "." * 50
    yield "e30.e30.e30"
    yield f"{'W' * 4000}.{body}.{signature}"
    yield f"{_part({'alg': 'RS256', 'kid': ['one']})}.{body}.{signature}"
    secret = issuer.key.as_pem(private=False)
    for header in ({"alg": "HS256", "kid": "one"}, {"alg": "HS256"}):
        signed = f"{_part(header)}.{body}"
        digest = hmac.digest(secret, signed.encode(), "sha256")
        yield f"{signed}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
    stranger = Issuer(issuer.file.with_name("stranger.json"))
    yield stranger.token()


async def test_a_forged_token_is_refused(issuer: Issuer, validator: TokenValidator) -> None:
    for token in forged(issuer):
        with pytest.raises(TokenRefused):
            await validator.validate(token)


async def test_keys_change_while_the_broker_runs(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "jwks.json")
    validator = TokenValidator.of(Settings(settings(issuer.url)))
    validator.jwks.start()
    old = issuer.token()
    issuer.rotate("two")
    assert (await validator.validate(issuer.token())).user == "alice"
    with pytest.raises(TokenRefused):
        await validator.validate(old)
    issuer.publish("not JSON")
    assert (await validator.validate(issuer.token())).user == "alice"
    issuer.publish(json.dumps({"keys": [{"kty": "oct", "k": "AAAA", "kid": "two"}]}))
    assert (await validator.validate(issuer.token())).user == "alice"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("jwks.endpoint.url", None, "needs sasl.oauthbearer.jwks.endpoint.url"),
        ("expected.issuer", None, "needs sasl.oauthbearer.expected.issuer"),
        ("expected.audience", None, "needs sasl.oauthbearer.expected.audience"),
        ("jwks.endpoint.url", "http://127.0.0.1/keys", "must be an https: or file: URL"),
        ("jwks.endpoint.url", "https://me:secret@host/", "must be an https: or file: URL"),
        ("jwks.endpoint.url", "file:///absent/keys.json", "No such file"),
    ],
)
def test_a_configuration_without_keys_does_not_start(
    tmp_path: Path, name: str, value: str | None, words: str
) -> None:
    given = settings((tmp_path / "jwks.json").as_uri())
    given[f"sasl.oauthbearer.{name}"] = value or ""
    with pytest.raises(StartError, match=words) as caught:
        TokenValidator.of(Settings(given)).jwks.start()
    assert "secret" not in str(caught.value)


@pytest.fixture(scope="module")
def broker(issuer: Issuer) -> Iterator[Broker]:
    given = {**settings(issuer.url), "connection.failed.authentication.delay.ms": "10"}
    with Broker(settings=given, listeners=("SASL_PLAINTEXT",)) as running:
        yield running


def exchange(peer: Peer, message: bytes) -> Any:
    peer.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
    return peer.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=message))


@pytest.mark.parametrize("authorization_id", ["", "alice"])
def test_a_session_lasts_as_long_as_its_token(
    broker: Broker, issuer: Issuer, authorization_id: str
) -> None:
    with Peer(broker.bootstrap_servers) as peer:
        response = exchange(peer, bearer(issuer.token(), authorization_id))
    assert response.error_code == 0
    assert 50_000 < response.session_lifetime_ms <= 60_000


def test_a_refused_token_gets_a_challenge_then_an_error(broker: Broker, issuer: Issuer) -> None:
    with Peer(broker.bootstrap_servers) as peer:
        first = exchange(peer, bearer(issuer.token(aud="other-cluster")))
        assert (first.error_code, bytes(first.auth_bytes)) == (0, b'{"status":"invalid_token"}')
        last = peer.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=b"\x01"))
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert last.error_message == '{"status":"invalid_token"}'
        assert peer.ended()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic eDp5\x01\x01",
        b"n,a=bob,\x01auth=Bearer TOKEN\x01\x01",
    ],
)
def test_another_message_is_refused(broker: Broker, issuer: Issuer, message: bytes) -> None:
    with Peer(broker.bootstrap_servers) as peer:
        response = exchange(peer, message.replace(b"TOKEN", issuer.token().encode()))
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert peer.ended()
