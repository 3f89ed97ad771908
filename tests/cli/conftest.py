"""An empty log, and the command line on it with bytes on stdin."""

import io
import os
from collections.abc import Callable

import pytest

from korvet import Korvet as Log
from korvet.cli import run
from tests.support.redis_servers import TestServer

Korvet = Callable[..., tuple[int, str, str]]


@pytest.fixture
def log(valkey_server: TestServer) -> Log:
    """An empty log with a topic of two partitions with dense offsets."""
    with valkey_server.client() as client:
        client.flushall()
    found = Log.connect(valkey_server.url)
    found.create_topic("orders", 2, {"offset.mode": "dense"})
    return found


@pytest.fixture
def korvet(
    valkey_server: TestServer,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Korvet:
    """Run a command line with bytes on stdin; return exit code, stdout and stderr."""

    def command(*words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as end:
            end.write(stdin)
        with os.fdopen(reading, "rb") as file:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
            code = run([*words, "--redis", valkey_server.url])
        said = capfdbinary.readouterr()
        return code, said.out.decode(), said.err.decode()

    return command
