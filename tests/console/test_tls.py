"""Check the ops port with TLS: pages, probes, the cookie, new certificates."""

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from korvet.config.broker_config import ConfigError, load
from tests.support.certificates import Authority
from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, running_console, send, token_in

OPS = "SSL://127.0.0.1:0"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Path:
    found = tmp_path_factory.mktemp("tls")
    (found / "ca.pem").write_text(authority.pem)
    authority.sign("ops").write(found / "ops.pem")
    return found


@pytest.fixture(scope="module")
def console(valkey_server: TestServer, folder: Path) -> Iterator[RunningConsole]:
    """A console with TLS, on a broker whose only other listener has none."""
    setting = f"listener.name.ops.ssl.keystore.location={folder / 'ops.pem'}"
    with running_console(valkey_server, setting, ops=OPS) as made:
        made.log.create_topic("orders", 1)
        yield made


@pytest.fixture
def browser(console: RunningConsole, folder: Path) -> Iterator[httpx.Client]:
    with console.browser(verify=trusting(folder)) as made:
        yield made


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "ca.pem"))


def test_the_start_names_https_and_pages_and_probes_are_served(
    console: RunningConsole, browser: httpx.Client
) -> None:
    assert console.url.startswith("https://")
    paths = ("/", "/topics", "/livez", "/readyz", "/metrics", "/metrics/kafka", "/api/openapi.json")
    for path in (*paths, *paths):  # the second time on connections that the console has
        end = time.monotonic() + 30  # readiness and a first page may take longer than they wait
        while (status := browser.get(path).status_code) == 503 and time.monotonic() < end:
            pass
        assert status == 200, path


def test_the_cookie_is_sent_with_tls_only(browser: httpx.Client) -> None:
    cookie = browser.get("/topics").headers["set-cookie"]
    assert "; Secure" in cookie and "; HttpOnly" in cookie


def test_a_form_of_a_megabyte_arrives(console: RunningConsole, browser: httpx.Client) -> None:
    value = "x" * 900_000
    found = send(browser, "/topics/orders/produce", "/topics/orders/produce", value=value)
    assert "was appended to partition" in found.text
    assert len(console.log.fetch("orders", 0, 0).records[0].value or b"") == len(value)


def test_a_client_without_tls_gets_the_scheme(console: RunningConsole) -> None:
    found = httpx.get(console.url.replace("https:", "http:") + "/topics")
    assert (found.status_code, found.text) == (
        400,
        "This port uses TLS: open https:// instead.\n",
    )


def test_a_client_that_does_not_trust_the_certificate_harms_no_other(
    console: RunningConsole, browser: httpx.Client
) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{console.url}/topics")
    where = console.url.rpartition("/")[2].split(":")
    with socket.create_connection((where[0], int(where[1]))) as silent:
        silent.send(b"\x16\x03\x01")  # a handshake that ends
    assert browser.get("/topics").status_code == 200


def test_a_new_certificate_is_used_without_a_restart(
    console: RunningConsole, folder: Path, authority: Authority
) -> None:
    newer = authority.sign("ops", names=("localhost", "newer.example"))
    newer.write(folder / "ops.pem")
    end = time.monotonic() + 10
    while served(console) != newer.der:
        assert time.monotonic() < end
        time.sleep(0.1)


def served(console: RunningConsole) -> bytes:
    host, _, port = console.url.rpartition("/")[2].partition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))


def test_a_user_signs_in_over_tls(valkey_server: TestServer, folder: Path) -> None:
    sets = (
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        f"ssl.keystore.location={folder / 'ops.pem'}",
    )
    listen = "SASL_SSL://127.0.0.1:0"
    with running_console(valkey_server, *sets, listen=listen, ops=OPS) as made:
        made.add_user("ann", "correct")
        with made.browser(verify=trusting(folder)) as browser:
            csrf = token_in(browser.get("/sign-in").text)
            form = {"csrf": csrf, "user": "ann", "password": "correct"}
            answer = browser.post("/sign-in?to=/topics", data=form)
            assert answer.status_code == 303 and "; Secure" in answer.headers["set-cookie"]
            assert browser.get("/topics").status_code == 200


def test_a_client_certificate_is_requested_by_the_setting_of_the_ops_port_only(
    valkey_server: TestServer, folder: Path, authority: Authority
) -> None:
    store = f"ssl.keystore.location={folder / 'ops.pem'}"
    trust = f"ssl.truststore.location={folder / 'ca.pem'}"
    with running_console(valkey_server, store, trust, "ssl.client.auth=required", ops=OPS) as made:
        assert httpx.get(f"{made.url}/livez", verify=trusting(folder)).status_code == 200
    own = "listener.name.ops.ssl.client.auth=required"
    with running_console(valkey_server, store, trust, own, ops=OPS) as made:
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{made.url}/livez", verify=trusting(folder))
        context = trusting(folder)
        context.load_cert_chain(authority.sign("prometheus").write(folder / "client.pem"))
        assert httpx.get(f"{made.url}/livez", verify=context).status_code == 200


def test_a_wrong_protocol_or_a_missing_key_store_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"--ops must be \[SSL://\]HOST:PORT"):
        load({"ops": "SASL_SSL://h:1"}, environ={})
    with pytest.raises(ConfigError, match="there is no listener OPS"):
        load({"ops": "h:1"}, sets=["listener.name.ops.ssl.client.auth=none"], environ={})
    assert not load({"ops": "PLAINTEXT://h:1"}, environ={}).ops_tls
