"""Check that no secret leaves the process, in logs, metrics and errors or in Redis."""

import base64
import io
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from korvet.cli import run
from korvet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from korvet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from korvet.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.ports import free_port
from tests.support.raw_client import Peer, request
from tests.support.redis_servers import TestServer, server
from tests.support.sasl_client import ScramClient, bearer, plain
from tests.support.tokens import Issuer, settings

OPS = f"127.0.0.1:{free_port()}"
REDIS_PASSWORD, PASSWORD = "rediS-pa55", "us3r-pa55word"
WRONG, AS_NAME, SALTED = "wr0ng-pa55word", "pa55word-as-name", b"salted-pa55word-0123456789abcdef"


@pytest.fixture
def redis_with_password() -> Iterator[TestServer]:
    with server("valkey", "--requirepass", REDIS_PASSWORD) as running:
        path = running.url.removeprefix("unix://")
        yield TestServer(running.kind, f"unix://:{REDIS_PASSWORD}@{path}", running.pid)


@contextmanager
def broker(folder: Path, url: str, *sets: str) -> Iterator[tuple[list[str], psutil.Process]]:
    """Run `korvet` at log level debug; yield its addresses and its process."""
    words = [sys.executable, "-m", "korvet", "--log-level", "debug", "--ops", OPS]
    words += ["--listen", "SASL_PLAINTEXT://127.0.0.1:0", "--listen", "127.0.0.1:0"]
    for each in sets:
        words += ["--set", each]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "KORVET_REDIS_URL": url},
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        try:
            yield [line.split("/")[-1].split()[-1] for line in lines], psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()


def attempt(address: str, mechanism: str, *tokens: bytes) -> None:
    """Send a handshake and these tokens, whatever the responses are."""
    with Peer(address) as peer:
        peer.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism=mechanism))
        for token in tokens:
            peer.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=token))


Command = Callable[..., str]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command at log level debug and return its output."""

    def run_command(url: str, *words: str, stdin: str = "") -> str:
        content = SimpleNamespace(buffer=io.BytesIO(stdin.encode()), isatty=lambda: False)
        monkeypatch.setattr("sys.stdin", content)
        monkeypatch.setenv("KORVET_REDIS_URL", url)
        run([*words, "--log-level", "debug"])
        return "".join(capfd.readouterr())

    return run_command


def spellings(secret: str | bytes) -> set[str]:
    """Return the secret as text, Base64 and hexadecimal digits."""
    raw = secret.encode() if isinstance(secret, str) else secret
    return {raw.decode(), base64.b64encode(raw).decode().rstrip("=")[:-1], raw.hex()}


def test_secrets_are_in_no_output_and_not_in_redis(
    redis_with_password: TestServer, tmp_path: Path, command: Command
) -> None:
    url = redis_with_password.url
    issuer = Issuer(tmp_path / "jwks.json")
    good, bad = issuer.token(), issuer.token(aud="other")
    said = command(url, "users", "add", "alice", stdin=PASSWORD + "\n")
    sets = [f"{name}={value}" for name, value in settings(issuer.url).items()]
    with broker(tmp_path, url, *sets) as (addresses, process):
        sasl, open_to_all = addresses
        said += " ".join(process.cmdline()) + process.name()
        attempt(sasl, "PLAIN", plain("alice", PASSWORD))
        attempt(sasl, "PLAIN", plain("alice", WRONG))
        attempt(sasl, "PLAIN", plain(AS_NAME, WRONG))
        attempt(sasl, "PLAIN", f"{AS_NAME}{WRONG}".encode())
        attempt(sasl, "SCRAM-SHA-256", ScramClient("SCRAM-SHA-256", AS_NAME, WRONG).first(), b"x")
        attempt(sasl, "OAUTHBEARER", bearer(good))
        attempt(sasl, "OAUTHBEARER", bearer(bad), b"\x01")
        attempt(sasl, "OAUTHBEARER", bearer(good.replace(".", ".x", 1)), b"\x01")
        row = ScramCredentialUpsertion(
            name="bob", mechanism=1, iterations=4096, salt=b"salt", salted_password=SALTED
        )
        body = AlterUserScramCredentialsRequest(deletions=[], upsertions=[row, row])
        alone = AlterUserScramCredentialsRequest(deletions=[], upsertions=[row])
        with Peer(open_to_all) as peer:
            said += str(peer.ask("AlterUserScramCredentials", 0, body))
            said += str(peer.ask("AlterUserScramCredentials", 0, alone))
            wanted = DescribeConfigsResource(
                resource_type=4, resource_name="0", configuration_keys=None
            )
            said += str(peer.ask("DescribeConfigs", 4, DescribeConfigsRequest(resources=[wanted])))
            peer.send(request("AlterUserScramCredentials", 0, alone)[:-4])
            peer.ended()
        with Peer(sasl) as peer:
            peer.send(plain(AS_NAME, WRONG))
            peer.ended()
        for words in (("doctor",), ("users", "list"), ("topics", "list"), ("redis-acl",)):
            said += command(url, *words)
        with urllib.request.urlopen(f"http://{OPS}/metrics") as response:
            said += response.read().decode()
        said += command(url.replace("unix:", "http:"), "topics", "list")
        said += command(url.replace(REDIS_PASSWORD, WRONG), "topics", "list")
    said += (tmp_path / "log").read_text()
    with redis_with_password.client() as client:
        for key in client.keys("*"):
            said += repr(client.dump(key)) + repr(key)
        stored = repr(client.hgetall("korvet:users"))
    assert "client authenticated" in said and "wrong password" in said and "alice" in said
    secrets: list[str | bytes] = [REDIS_PASSWORD, PASSWORD, WRONG, AS_NAME, SALTED]
    secrets += [part for token in (good, bad) for part in token.split(".")[1:]]
    for secret in secrets:
        for text in spellings(secret):
            assert text not in said + stored, text


def test_a_password_on_the_command_line_is_warned_of(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "korvet", "--redis", "redis://:us3r-pa55@127.0.0.1:1"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as waits:
        assert waits.stderr is not None
        said = ""
        while "waiting for Redis" not in said:
            assert waits.poll() is None, said
            said += waits.stderr.readline()
        waits.terminate()
    assert "the Redis password is in the process list" in said
    assert "us3r-pa55" not in said
