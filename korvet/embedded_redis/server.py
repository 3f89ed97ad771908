"""The Redis that Korvet starts for itself when it is given none.

Rules
- One data directory, one owner: an exclusive lock on it is held for as long as the server runs.
- What was acknowledged survives: the append-only file is written before a reply leaves, its owner
  syncs it once a second (redis_file.py), and a server is always asked to finish (SIGTERM,
  SHUTDOWN), never killed.
- A server never outlives its owner: on Linux the kernel stops it when the owner dies, and whoever
  takes the directory next stops what is left of an earlier one first. The kernel takes the thread
  that started a server for its owner: that has to be one that lives as long as the process.
- Only the socket in the directory leads to it; no port is opened.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from korvet.config.setting import StartError
from korvet.embedded_redis import aof
from korvet.embedded_redis.binary import environment, find, major_version, parent_death_signal
from korvet.embedded_redis.socket import ask, socket_path

STOP_SECONDS = 60.0
SOCKET_SECONDS = 30.0
"""A server opens its socket before it loads anything: without one for so long, it stays so."""
_LOG_LIMIT = 4 << 20

_SETTINGS = (
    ("port", "0"),
    ("unixsocketperm", "700"),
    ("daemonize", "no"),
    ("databases", "1"),
    ("appendonly", "yes"),
    ("aof-use-rdb-preamble", "yes"),
    *aof.SETTINGS,
    ("save", ""),
    ("maxmemory-policy", "noeviction"),
    ("always-show-logo", "no"),
)


class RedisServer:
    """A running server over one data directory; `launch` then `wait_ready`, or `with`."""

    def __init__(self, executable: Path, data_dir: Path, socket: Path, lock: int) -> None:
        self.data_dir = data_dir
        self.socket = socket
        self._executable = executable
        self._lock = lock
        self._process = _spawn(executable, data_dir, socket)
        self._look_at = time.monotonic() + aof.LOOK_S

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    def launch(cls, data_dir: Path | str, *, binary: str | None = None) -> "RedisServer":
        """The directory is ours and a server is loading it. StartError says what is in the way."""
        executable = find(binary)
        directory = Path(data_dir).absolute()
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = _lock(directory)
        except OSError as error:
            raise StartError(
                f"The data directory {directory} cannot be used: {error.strerror}; "
                "choose another with --data-dir."
            ) from None
        try:
            socket = socket_path(directory)
            _refuse_older(executable, directory)
            _stop_left_over(directory, socket)
            return cls(executable, directory, socket, lock)
        except OSError as error:
            os.close(lock)
            raise StartError(f"{executable} cannot be started: {error.strerror}.") from None
        except BaseException:
            os.close(lock)
            raise

    def wait_ready(self) -> None:
        """The server answers. Loading a long log may take as long as it takes; StartError when it
        ends, or its socket is not there, since somebody else took it away."""
        give_up = time.monotonic() + SOCKET_SECONDS
        while True:
            answer = ask(self.socket, b"PING")
            if answer.startswith(b"+PONG"):
                return
            if self._process.poll() is not None:
                self._release()
                raise StartError(
                    f"The Redis of {self.data_dir} stopped while starting"
                    f" (exit code {self._process.returncode}): {self.last_words()}"
                )
            if self.socket.exists():
                give_up = time.monotonic() + SOCKET_SECONDS
            elif time.monotonic() > give_up:
                raise StartError(
                    f"The Redis of {self.data_dir} (pid {self.pid}) runs, but its socket "
                    f"{self.socket} is not there: see redis.log beside it, and start again."
                )
            time.sleep(0.002)

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def relaunch(self) -> None:
        """A new server loads what the dead one left; the socket is the same."""
        self._process = _spawn(self._executable, self.data_dir, self.socket)

    def sync(self) -> None:
        """What was acknowledged before is on disk. Raises OSError."""
        aof.sync(self.data_dir)

    def tend(self) -> None:
        """As `sync`, and the append-only file is rewritten if it is time to look and worth it. For
        its owner to call every SYNC_S."""
        if time.monotonic() >= self._look_at:
            aof.tidy(self.socket)
            self._look_at = time.monotonic() + aof.LOOK_S
        self.sync()

    def last_words(self) -> str:
        """The end of the server's log, on one line."""
        lines = (self.data_dir / "redis.log").read_text(errors="replace").splitlines()
        telling = [line for line in lines if line.strip() and ("#" in line or "***" in line)]
        return " | ".join(line.strip() for line in (telling or lines)[-3:])[-500:] or "nothing"

    def stop(self) -> None:
        """The log is on disk, the process is gone, the directory is free. May be called twice."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                raise StartError(
                    f"The Redis of {self.data_dir} (pid {self.pid}) is still writing after "
                    f"{STOP_SECONDS:.0f} s and was left alone; its data is complete once it ends."
                ) from None
        self._release()

    def _release(self) -> None:
        if self._lock >= 0:
            (self.data_dir / "redis.pid").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> "RedisServer":
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _lock(directory: Path) -> int:
    """An exclusive lock on the directory, held until the descriptor is closed."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StartError(
            f"The data directory {directory} is in use by another Korvet (pid {owner}); "
            "stop that one, or choose another with --data-dir."
        ) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def _refuse_older(executable: Path, directory: Path) -> None:
    """A server before version 7 would not see the log of a newer one, and start empty beside it."""
    if (directory / "appendonlydir").exists() and major_version(executable) < 7:
        raise StartError(
            f"{executable} is too old for {directory}, which a newer server wrote: "
            "use version 7 or newer, or choose another directory with --data-dir."
        )


def _spawn(executable: Path, directory: Path, socket: Path) -> subprocess.Popen[bytes]:
    """A server process on the directory, its words going to redis.log there."""
    log = directory / "redis.log"
    fresh = not log.exists() or log.stat().st_size > _LOG_LIMIT
    arguments = [str(executable)]
    where = (("dir", str(directory)), ("unixsocket", str(socket)))
    for name, value in (*where, *_SETTINGS):
        arguments += [f"--{name}", value]
    with log.open("wb" if fresh else "ab") as words:
        process = subprocess.Popen(
            arguments,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches only us: we finish what is in flight before the server goes.
            start_new_session=True,
            preexec_fn=parent_death_signal(signal.SIGTERM),
        )
    with suppress(OSError):  # a full disk: its socket leads to it as well
        (directory / "redis.pid").write_text(f"{process.pid}\n")
    return process


def _stop_left_over(directory: Path, socket: Path) -> None:
    """No server of an earlier owner runs on the directory any more."""
    try:
        pid = int((directory / "redis.pid").read_text())
    except (OSError, ValueError):
        pid = 0
    if pid and not _serves(pid, socket):
        pid = 0
    # The socket answers even where the pid file was lost.
    ask(socket, b"SHUTDOWN")
    give_up = time.monotonic() + STOP_SECONDS
    while (pid and _serves(pid, socket)) or ask(socket, b"PING"):
        if time.monotonic() > give_up:
            raise StartError(
                f"An earlier Redis (pid {pid or 'unknown'}) still holds {directory}; stop it."
            )
        time.sleep(0.01)
    socket.unlink(missing_ok=True)


def _serves(pid: int, socket: Path) -> bool:
    """Whether that process is a server on that socket, and not a stranger with a reused number."""
    try:
        if sys.platform == "linux":
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        else:
            command = subprocess.run(
                ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
            ).stdout
    except OSError:
        return False
    return os.fsencode(socket) in command
