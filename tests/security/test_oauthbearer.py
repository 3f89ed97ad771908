"""Check which tokens are accepted, and when sets of keys are read."""

import base64
import hmac
import json
import ssl
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from korvet.base.errors import ErrorCode
from korvet.config.setting import StartError
from korvet.config.values import Settings
from korvet.security.jwks import Jwks
from korvet.security.oauthbearer import TokenRefused, TokenValidator
from korvet.testing import Broker
from korvet.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.certificates import Authority
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


class Endpoint:
    """An HTTPS server with a key set; `status` and `keys` are its response."""

    def __init__(self, folder: Path) -> None:
        self.keys = {"one": RSAKey.generate_key(2048, {"kid": "one"})}
        self.status, self.requests = 200, 0
        authority = Authority.make()
        (folder / "ca.pem").write_text(authority.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.sign("issuer").write(folder / "issuer.pem"))
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.requests += 1
                self.send_response(endpoint.status)
                self.send_header("Location", f"file://{folder}/ca.pem")
                self.end_headers()
                rows = [key.as_dict(private=False) for key in endpoint.keys.values()]
                self.wfile.write(json.dumps({"keys": rows}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_port}/keys"
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    running = Endpoint(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    yield running
    running.close()


def test_keys_are_read_after_the_interval_and_for_an_unknown_key(endpoint: Endpoint) -> None:
    now = [0.0]
    jwks = Jwks(endpoint.url, 3600, 10, clock=lambda: now[0])
    jwks.start()
    assert len(jwks.candidates("one")) == len(jwks.candidates(None)) == 1
    assert endpoint.requests == 1
    endpoint.keys = {"two": RSAKey.generate_key(2048, {"kid": "two"})}
    assert jwks.candidates("two") == []
    now[0] += 10
    assert len(jwks.candidates("two")) == 1
    for _ in range(3):
        assert jwks.candidates("unknown") == []
    assert endpoint.requests == 2
    now[0] += 3600
    jwks.candidates("two")
    assert endpoint.requests == 3


@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_failed_read_leaves_the_keys_and_follows_no_redirect(
    endpoint: Endpoint, status: int
) -> None:
    now = [0.0]
    jwks = Jwks(endpoint.url, 60, 10, clock=lambda: now[0])
    jwks.start()
    endpoint.status = status
    now[0] += 60
    assert len(jwks.candidates("one")) == 1
    assert endpoint.requests == 2
    endpoint.status = 200
    now[0] += 10
    jwks.candidates("one")
    assert endpoint.requests == 3


def test_a_broker_starts_without_its_issuer(endpoint: Endpoint) -> None:
    now = [0.0]
    endpoint.status = 503
    jwks = Jwks(endpoint.url, 3600, 10, clock=lambda: now[0])
    jwks.start()
    assert jwks.candidates("one") == []
    endpoint.status = 200
    now[0] += 10
    assert len(jwks.candidates("one")) == 1


def test_a_certificate_of_another_authority_is_refused(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    jwks = Jwks(endpoint.url, 3600, 10)
    jwks.start()
    assert jwks.candidates("one") == []
    assert endpoint.requests == 0
