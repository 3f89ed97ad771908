"""An empty log, and the command line on it with bytes on stdin."""

import io
import os
from collections.abc import Callable, Iterator, Sequence

import pytest

from korvet import Korvet as Log
from korvet.cli import run
from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, running_console

Korvet = Callable[..., tuple[int, str, str]]
Lines = Callable[..., tuple[int, list[str], str]]
"""A command line that returns exit code, lines of stdout, and stderr."""


def texts_of(
    capfd: pytest.CaptureFixture[str], where: Sequence[str], before: Sequence[str] = ()
) -> Korvet:
    """Return what runs a command line there; it returns exit code, stdout and stderr."""

    def command(*words: str) -> tuple[int, str, str]:
        code = run([*before, *words, *where])
        said = capfd.readouterr()
        return code, said.out, said.err

    return command


def lines_of(capfd: pytest.CaptureFixture[str], where: Sequence[str]) -> Lines:
    """Return what runs a command line there; it returns exit code, lines and stderr."""
    command = texts_of(capfd, where)

    def lines(*words: str) -> tuple[int, list[str], str]:
        code, out, err = command(*words)
        return code, out.splitlines(), err

    return lines


@pytest.fixture(scope="module")
def broker(valkey_server: TestServer) -> Iterator[RunningConsole]:
    with running_console(valkey_server) as made:
        yield made


@pytest.fixture(scope="module")
def guarded_broker(valkey_server: TestServer) -> Iterator[RunningConsole]:
    """A broker with ACL rules, whose tools have all rights."""
    sets = ("authorizer.class.name=korvet", "super.users=User:ANONYMOUS")
    with running_console(valkey_server, *sets) as made:
        yield made


@pytest.fixture
def lines(valkey_server: TestServer, capfd: pytest.CaptureFixture[str]) -> Lines:
    """Run a command line on an empty server; return exit code, lines and stderr."""
    with valkey_server.client() as client:
        client.flushall()
    return lines_of(capfd, ("--redis", valkey_server.url))


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
