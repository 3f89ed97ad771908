"""Check when key sets are read over HTTPS, and that no redirect is followed."""

import json
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from joserfc.jwk import RSAKey

from korvet.security.jwks import Jwks
from tests.support.certificates import Authority


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
