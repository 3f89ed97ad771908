"""When our own Redis rewrites its append-only file, and that it does."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from korvet.embedded_redis import aof
from korvet.embedded_redis.aof import WORTH, is_due
from korvet.embedded_redis.server import RedisServer

MB = 1 << 20


def told(size: int, base: int, kb_s: float = 0.0, *, enabled: int = 1, running: int = 0) -> bytes:
    """What INFO says."""
    return (
        f"$300\r\n# Persistence\r\naof_enabled:{enabled}\r\naof_rewrite_in_progress:{running}\r\n"
        f"aof_current_size:{size}\r\naof_base_size:{base}\r\n\r\n"
        f"$300\r\n# Stats\r\ninstantaneous_input_kbps:{kb_s:.2f}\r\n"
    ).encode()


@pytest.mark.parametrize(
    ("info", "due"),
    [
        (told(WORTH, 0), True),
        (told(WORTH - 1, 0), False),
        (told(4 * WORTH, 2 * WORTH), True),
        (told(4 * WORTH - 1, 2 * WORTH), False),
        (told(4 * WORTH, 2 * WORTH, 1023.9), True),
        (told(4 * WORTH, 2 * WORTH, 1024.0), False),
        (told(4 * WORTH, 2 * WORTH, running=1), False),
        (told(4 * WORTH, 2 * WORTH, enabled=0), False),
        (told(4 * WORTH, 2 * WORTH).partition(b"# Stats")[0], False),
        (b"", False),
        (b"-LOADING Redis is loading the dataset in memory\r\n", False),
    ],
)
def test_a_rewrite_is_due_where_it_is_worth_it_and_little_is_written(
    info: bytes, due: bool
) -> None:
    assert is_due(info) is due


def test_a_file_that_has_grown_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aof, "WORTH", MB)
    # What is written here is written at once: that counts as much for some seconds.
    monkeypatch.setattr(aof, "QUIET_KB_S", 1e9)
    with RedisServer.launch(tmp_path) as server, Redis.from_url(server.url, protocol=2) as client:
        assert not aof.tidy(server.socket)
        for _ in range(3):
            client.set("key", b"x" * MB)
        assert aof.tidy(server.socket)
        while client.info("persistence")["aof_rewrite_in_progress"]:
            os.sched_yield()
        told = client.info("persistence")
        assert told["aof_last_bgrewrite_status"] == "ok"
        assert told["aof_current_size"] < 2 * MB
        assert not aof.tidy(server.socket)
    with RedisServer.launch(tmp_path) as server, Redis.from_url(server.url) as client:
        assert client.get("key") == b"x" * MB


def test_every_file_that_a_server_writes_to_is_brought_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    to_disk = aof._to_disk

    def told(file: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{file}") if sys.platform == "linux" else "?")
        to_disk(file)

    monkeypatch.setattr(aof, "_to_disk", told)
    aof.sync(tmp_path)
    assert found == []
    with RedisServer.launch(tmp_path) as server, Redis.from_url(server.url, protocol=2) as client:
        for _ in range(2):
            client.set("key", b"value")
            found.clear()
            server.sync()
            (written,) = found
            if sys.platform == "linux":
                assert b"value" in Path(written).read_bytes()
            client.bgrewriteaof()
            while client.info("persistence")["aof_rewrite_in_progress"]:
                os.sched_yield()
    (tmp_path / "appendonly.aof").write_bytes(b"an older server's")
    found.clear()
    aof.sync(tmp_path)
    assert len(found) == 2


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_broker_syncs_its_server_by_the_clock_whatever_comes_of_it(
    tmp_path: Path, workers: str
) -> None:
    program = (
        "import korvet.embedded_redis.aof as f, sys\n"
        "f.SYNC_S = 0.01\n"
        "def sync(directory): raise OSError(5, 'no disk')\n"
        "f.sync = sync\n"
        "from korvet.__main__ import main\n"
        "main()\n"
    )
    with running(program, tmp_path, workers) as broker:
        for _ in range(3):
            while b"does not get to disk" not in (line := broker.stderr.readline()):
                assert broker.poll() is None
            assert b"no disk" in line


def test_a_server_that_is_gone_is_not_tidied(tmp_path: Path) -> None:
    assert not aof.tidy(tmp_path / "no.sock")


def test_workers_are_looked_after_by_the_clock_and_end_in_peace(tmp_path: Path) -> None:
    """The clock's signal ends nobody: neither parent nor worker, neither at work nor at the end."""
    program = (
        "import korvet.embedded_redis.aof as f, sys\n"
        "f.SYNC_S = f.LOOK_S = 0.01\n"
        "f.tidy = lambda socket: sys.stderr.write('tidied\\n')\n"
        "from korvet.__main__ import main\n"
        "main()\n"
    )
    with running(program, tmp_path, "2") as broker:
        for _ in range(3):
            while broker.stderr.readline() != b"tidied\n":
                assert broker.poll() is None


@contextmanager
def running(program: str, folder: Path, workers: str) -> Iterator[Any]:
    """The program as a broker that serves; it ends in peace."""
    words = ["--listen", "127.0.0.1:0", "--data-dir", str(folder / "data"), "--workers", workers]
    broker = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert broker.stdout is not None
    assert broker.stdout.readline().startswith(b"listening on ")
    yield broker
    broker.send_signal(signal.SIGTERM)
    broker.communicate(timeout=60)
    assert broker.returncode == 0
