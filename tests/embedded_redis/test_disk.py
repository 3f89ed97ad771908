"""Check that writers wait for a slow disk, and are refused by a failed one."""

import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, ResponseError

from korvet.base.synced_files import SyncedFiles
from korvet.embedded_redis import disk
from korvet.embedded_redis.disk import HOLD_MS, LATE_S, REFUSE_S, Disk
from korvet.embedded_redis.server import RedisServer


class SlowDisk:
    """A disk whose clock and result of a sync the test sets."""

    def __init__(self, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.error: OSError | None = None
        monkeypatch.setattr(disk, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(SyncedFiles, "sync", lambda files: self._sync())
        self.watched = Disk(server.data_dir, server.socket)

    def _sync(self) -> None:
        if self.error is not None:
            raise self.error

    def sync(self) -> None:
        """Complete a sync that begins now, and watch its result."""
        self.watched.sync(self.now_s)
        self.watched.watch()

    def wait(self, seconds: float) -> None:
        """Let time pass without a completed sync."""
        self.now_s += seconds
        self.watched.watch()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer.launch(tmp_path) as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[Redis]:
    with Redis.from_url(server.url, protocol=2) as client:
        yield client


@pytest.fixture
def slow(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(server, monkeypatch)


@contextmanager
def write(server: RedisServer) -> Iterator[socket.socket]:
    """Send a write, and wait until the server has read it."""
    with (
        socket.socket(socket.AF_UNIX) as line,
        Redis.from_url(server.url, protocol=2) as client,
    ):
        line.connect(str(server.socket))
        line.sendall(b"SET orders 1\r\n")
        line.settimeout(20)
        while not any(row["cmd"] == "set" for row in client.client_list()):
            pass
        yield line


def is_answered(line: socket.socket) -> bool:
    return bool(select.select([line], [], [], 0)[0])


def test_a_disk_in_time_delays_no_write(slow: SlowDisk, client: Redis) -> None:
    for _ in range(3):
        slow.wait(LATE_S - 0.1)
        assert client.set("orders", "1")
        slow.sync()


def test_writes_wait_while_a_sync_is_late_and_reads_do_not(
    slow: SlowDisk, server: RedisServer, client: Redis
) -> None:
    slow.wait(LATE_S + 0.1)
    with write(server) as line:
        assert not is_answered(line)
        assert client.get("orders") is None
        slow.sync()
        assert line.recv(5) == b"+OK\r\n"


def test_writes_continue_between_two_syncs_of_a_disk_that_is_always_slow(
    slow: SlowDisk, client: Redis
) -> None:
    for _ in range(2):
        began = slow.now_s
        for _ in range(10):
            slow.wait(0.5)
        slow.watched.sync(began)
        slow.watched.watch()
    assert client.set("orders", "1")


def test_a_held_write_continues_if_the_process_that_syncs_ends() -> None:
    assert 0 < HOLD_MS <= 1000


def test_writes_are_refused_while_a_sync_takes_too_long(
    slow: SlowDisk, server: RedisServer, client: Redis
) -> None:
    slow.wait(LATE_S + 0.1)
    with write(server) as line:
        slow.wait(REFUSE_S)
        assert line.recv(99).startswith(b"-NOREPLICAS")
    with pytest.raises(ResponseError, match="NOREPLICAS"):
        client.eval("return redis.call('SET', KEYS[1], 1)", 1, "orders")
    assert client.get("orders") is None
    slow.sync()
    assert client.set("orders", "1")


def test_writes_are_refused_after_a_failed_sync_until_the_file_is_rewritten(
    slow: SlowDisk, client: Redis
) -> None:
    client.set("orders", "1")
    # The failed sync starts a rewrite, which may end before the next command.
    base = client.info("persistence")["aof_base_size"]
    slow.error = OSError(5, "Input/output error")
    slow.sync()
    with pytest.raises(ResponseError, match="NOREPLICAS"):
        client.set("orders", "2")
    slow.error = None
    while True:
        slow.sync()
        info = client.info("persistence")
        if info["aof_base_size"] != base and not info["aof_rewrite_in_progress"]:
            break
    for _ in range(2):  # The first notes that the rewrite is done.
        slow.sync()
    assert client.set("orders", "2")


def test_a_full_disk_gives_what_was_replied_to_the_room_of_the_reserve(
    slow: SlowDisk, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve, status, free, ask = slow.watched.reserve, "ok", 1 << 40, disk.ask

    def reply(path: Path, command: bytes) -> bytes:
        found = ask(path, command)
        return found.replace(b"write_status:ok", b"write_status:" + status.encode())

    monkeypatch.setattr(disk, "ask", reply)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: (1 << 25, 0, free))
    slow.sync()
    assert client.set("orders", "1")
    assert reserve.stat().st_size == 1 << 22, "an eighth of a small disk"
    status, free = "err", 0
    slow.sync()
    assert not reserve.exists()
    status = "ok"
    slow.sync()
    with pytest.raises(ResponseError, match="NOREPLICAS"):
        client.set("orders", "2")
    free = 1 << 40
    slow.sync()
    assert client.set("orders", "2")
    assert reserve.exists()


def test_a_failure_outlives_the_process_that_found_it(
    slow: SlowDisk, server: RedisServer, client: Redis
) -> None:
    slow.error = OSError(5, "Input/output error")
    slow.sync()
    Disk(server.data_dir, server.socket).resume()
    with pytest.raises(ResponseError, match="NOREPLICAS"):
        client.set("orders", "2")


def test_a_restarted_server_refuses_writes_while_the_disk_fails(
    slow: SlowDisk, server: RedisServer, client: Redis
) -> None:
    slow.error = OSError(5, "Input/output error")
    slow.sync()
    client.config_set("min-replicas-to-write", 0)  # what a server starts with
    slow.sync()
    with pytest.raises(ResponseError, match="NOREPLICAS"):
        client.set("orders", "2")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_broker_reports_a_failed_sync_and_refuses_writes(tmp_path: Path, workers: str) -> None:
    flag = tmp_path / "failing"
    program = (
        "import os, korvet.embedded_redis.disk as disk\n"
        "disk.SYNC_S = 0.01\n"
        "def sync(directory):\n"
        f"    if os.path.exists({str(flag)!r}): raise OSError(5, 'no disk')\n"
        "disk.SyncedFiles.sync = sync\n"
        "from korvet.__main__ import main\n"
        "main()\n"
    )
    with running(program, tmp_path, workers) as broker:
        flag.touch()
        for event in (b"AOF fsync failed", b"disk failed, writes refused"):
            while event not in (line := broker.stderr.readline()):
                assert broker.poll() is None
            assert b"no disk" in line


@contextmanager
def running(program: str, folder: Path, workers: str) -> Iterator[Any]:
    """Run the program as a broker; it stops with exit code 0."""
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
