"""Check syncs and rewrites of the embedded Redis's append-only file."""

import os
import sys
from pathlib import Path

import pytest
from redis import Redis

from korvet.base import synced_files
from korvet.base.synced_files import SyncedFiles
from korvet.embedded_redis import disk
from korvet.embedded_redis.disk import MIN_BYTES, is_due
from korvet.embedded_redis.server import RedisServer

MB = 1 << 20


def info_of(
    size: int, base: int, kb_s: float = 0.0, *, enabled: int = 1, running: int = 0
) -> bytes:
    """Return INFO's reply."""
    return (
        f"$300\r\n# Persistence\r\naof_enabled:{enabled}\r\naof_rewrite_in_progress:{running}\r\n"
        f"aof_current_size:{size}\r\naof_base_size:{base}\r\n\r\n"
        f"$300\r\n# Stats\r\ninstantaneous_input_kbps:{kb_s:.2f}\r\n"
    ).encode()


@pytest.mark.parametrize(
    ("info", "due"),
    [
        (info_of(MIN_BYTES, 0), True),
        (info_of(MIN_BYTES - 1, 0), False),
        (info_of(4 * MIN_BYTES, 2 * MIN_BYTES), True),
        (info_of(4 * MIN_BYTES - 1, 2 * MIN_BYTES), False),
        (info_of(4 * MIN_BYTES, 2 * MIN_BYTES, 1023.9), True),
        (info_of(4 * MIN_BYTES, 2 * MIN_BYTES, 1024.0), False),
        (info_of(4 * MIN_BYTES, 2 * MIN_BYTES, running=1), False),
        (info_of(4 * MIN_BYTES, 2 * MIN_BYTES, enabled=0), False),
        (info_of(4 * MIN_BYTES, 2 * MIN_BYTES).partition(b"# Stats")[0], False),
        (b"", False),
        (b"-LOADING Redis is loading the dataset in memory\r\n", False),
    ],
)
def test_a_rewrite_is_due_for_a_large_file_at_a_low_write_rate(info: bytes, due: bool) -> None:
    assert is_due(info) is due


def test_a_file_that_has_grown_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "MIN_BYTES", MB)
    # Redis averages its write rate over some seconds: the test's rate counts as high.
    monkeypatch.setattr(disk, "QUIET_KB_S", 1e9)
    with RedisServer.launch(tmp_path) as server, Redis.from_url(server.url, protocol=2) as client:
        assert not disk.rewrite_if_due(server.socket)
        for _ in range(3):
            client.set("key", b"x" * MB)
        assert disk.rewrite_if_due(server.socket)
        while client.info("persistence")["aof_rewrite_in_progress"]:
            os.sched_yield()
        info = client.info("persistence")
        assert info["aof_last_bgrewrite_status"] == "ok"
        assert info["aof_current_size"] < 2 * MB
        assert not disk.rewrite_if_due(server.socket)
    with RedisServer.launch(tmp_path) as server, Redis.from_url(server.url) as client:
        assert client.get("key") == b"x" * MB


def test_every_file_that_a_server_writes_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    to_disk, files = synced_files._to_disk, SyncedFiles(tmp_path)

    def recorded(file: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{file}") if sys.platform == "linux" else "?")
        to_disk(file)

    monkeypatch.setattr(synced_files, "_to_disk", recorded)
    assert files.sync() == len(found) == 0
    with RedisServer.launch(tmp_path) as server, Redis.from_url(server.url, protocol=2) as client:
        for _ in range(2):
            client.set("key", b"value")
            found.clear()
            files.sync()
            (written,) = found
            if sys.platform == "linux":
                assert b"value" in Path(written).read_bytes()
            client.bgrewriteaof()
            while client.info("persistence")["aof_rewrite_in_progress"]:
                os.sched_yield()
    (tmp_path / "appendonly.aof").write_bytes(b"an older server's")
    found.clear()
    assert files.sync() == len(found) == 2
    files.close()


def test_a_stopped_server_is_not_rewritten(tmp_path: Path) -> None:
    assert not disk.rewrite_if_due(tmp_path / "no.sock")
