"""The Redis server that Korvet starts when no URL is given.

Rules
- One data directory, one owner: an exclusive lock on it is held while the server runs.
- Acknowledged writes survive: the append-only file is written before a reply is sent, and a broker
  syncs it once a second (`disk`). A server is asked to stop (SIGTERM, SHUTDOWN), never killed.
- A server never outlives its owner: on Linux the kernel stops it when the owner dies, and the next
  owner of the directory first stops a server that is left. The kernel's owner is the thread that
  started the server: it must live as long as the server is needed.
- The server is reached by the socket in the directory only; no port is opened.
"""

import errno
import fcntl
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from korvet.config.setting import StartError
from korvet.embedded_redis.binary import environment, find, major_version, parent_death_signal
from korvet.embedded_redis.disk import AOF_SETTINGS, Disk
from korvet.embedded_redis.socket import ask, socket_path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux's number of the time since the machine was started."""
STOP_SECONDS = 60.0
SOCKET_SECONDS = 30.0
"""Longest wait for the socket, which a server opens before it loads its data."""
_LOG_LIMIT = 4 << 20

_SETTINGS = (
    ("port", "0"),
    ("unixsocketperm", "700"),
    ("daemonize", "no"),
    ("databases", "1"),
    ("appendonly", "yes"),
    ("aof-use-rdb-preamble", "yes"),
    *AOF_SETTINGS,
    ("save", ""),
    ("maxmemory-policy", "noeviction"),
    ("always-show-logo", "no"),
)


class RedisServer:
    """A running server with one data directory; `launch` then `wait_ready`, or `with`."""

    def __init__(self, executable: Path, data_dir: Path, socket: Path, lock: int) -> None:
        self.data_dir = data_dir
        self.is_first_start = not (data_dir / "appendonlydir").exists()
        self.socket = socket
        self._executable = executable
        self._lock = lock
        self._process = _spawn(executable, data_dir, socket)
        self.disk = Disk(data_dir, socket)

    def note_boot(self) -> bool:
        """Store in which boot of the machine a broker began; return whether it was stored already.

        Then the files have all that was acknowledged.
        """
        try:
            boot = BOOT_ID.read_text()
        except OSError:
            return False  # Not Linux.
        note = self.data_dir / "boot_id"
        is_same = note.exists() and note.read_text() == boot
        note.write_text(boot)
        return is_same

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    def launch(cls, data_dir: Path | str, *, binary: str | None = None) -> "RedisServer":
        """Lock the directory and start a server on it. Raises StartError if that is impossible."""
        executable = find(binary)
        directory = Path(data_dir).absolute()
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make_private(directory)
            lock = _lock(directory)
        except OSError as error:
            raise _unusable(directory, error) from None
        try:
            socket = socket_path(directory)
            _refuse_older(executable, directory)
            _stop_left_over(directory, socket)
            return cls(executable, directory, socket, lock)
        except OSError as error:
            os.close(lock)
            raise _unstartable(executable, directory, error) from None
        except BaseException:
            os.close(lock)
            raise

    def wait_ready(self) -> None:
        """Wait until the server replies, however long it loads its data.

        Raises StartError if the process ends, or if its socket does not appear or was removed.
        """
        give_up = time.monotonic() + SOCKET_SECONDS
        while True:
            answer = ask(self.socket, b"PING")
            if answer.startswith(b"+PONG"):
                return
            if self._process.poll() is not None:
                self._release()
                raise StartError(
                    f"The Redis of {self.data_dir} stopped while starting"
                    f" (exit code {self._process.returncode}): {self.last_log_lines()}"
                )
            if self.socket.exists():
                give_up = time.monotonic() + SOCKET_SECONDS
            elif time.monotonic() > give_up:
                raise StartError(
                    f"The Redis of {self.data_dir} (pid {self.pid}) runs, but its socket "
                    f"{self.socket} is missing: see redis.log there, and start again."
                )
            time.sleep(0.002)

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._process.poll() is None

    def relaunch(self) -> None:
        """Start a new server on the same data and socket after the process ended."""
        self._process = _spawn(self._executable, self.data_dir, self.socket)

    def last_log_lines(self) -> str:
        """Return the last warnings of the server's log, on one line."""
        lines = (self.data_dir / "redis.log").read_text(errors="replace").splitlines()
        warnings = [line for line in lines if line.strip() and ("#" in line or "***" in line)]
        return " | ".join(line.strip() for line in (warnings or lines)[-3:])[-500:] or "nothing"

    def stop(self) -> None:
        """Stop the server, with its data on disk, and unlock the directory. May be called twice."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                raise StartError(
                    f"The Redis of {self.data_dir} (pid {self.pid}) is still writing after "
                    f"{STOP_SECONDS:.0f} s and was not killed; its data is complete when it ends."
                ) from None
        self._release()

    def _release(self) -> None:
        if self._lock >= 0:
            (self.data_dir / "redis.pid").unlink(missing_ok=True)
            self.disk.reserve.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> "RedisServer":
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _unstartable(executable: Path, directory: Path, error: OSError) -> StartError:
    """Build the error for a server that the system did not start on the directory."""
    if error.filename is not None and Path(os.fsdecode(error.filename)).parent == directory:
        return _unusable(directory, error)
    why = error.strerror
    if error.errno == errno.ENOEXEC or (error.errno == errno.ENOENT and executable.exists()):
        why = (
            f"it was built for another system than this ({sys.platform}, {platform.machine()}); "
            "install valkey-server or redis-server here, name one with --redis-server, "
            "or use a running one with --redis"
        )
    return StartError(f"{executable} cannot be started: {why}.")


def _unusable(directory: Path, error: OSError) -> StartError:
    return StartError(
        f"The data directory {directory} cannot be used: {error.strerror}; "
        "choose another with --data-dir."
    )


def _make_private(directory: Path) -> None:
    """Keep other users out: the files have records, and the credentials of users.

    Raises StartError if they may enter a directory of another owner.
    """
    mode = directory.stat().st_mode & 0o777
    if not mode & 0o077:
        return
    try:
        directory.chmod(mode & 0o700)
    except PermissionError:
        raise StartError(
            f"Other users may enter the data directory {directory}, which has another owner: "
            "have it changed to mode 700, or choose another with --data-dir."
        ) from None


def _lock(directory: Path) -> int:
    """Lock the directory until the returned descriptor is closed."""
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
    """Raise StartError for a server before version 7 on newer data: it would start empty."""
    if (directory / "appendonlydir").exists() and major_version(executable) < 7:
        raise StartError(
            f"{executable} is too old for {directory}, which a newer server wrote: "
            "use version 7 or newer, or choose another directory with --data-dir."
        )


def _spawn(executable: Path, directory: Path, socket: Path) -> subprocess.Popen[bytes]:
    """Start a server process on the directory; it logs to redis.log there."""
    log = directory / "redis.log"
    fresh = not log.exists() or log.stat().st_size > _LOG_LIMIT
    arguments = [str(executable)]
    where = (("dir", str(directory)), ("unixsocket", str(socket)))
    for name, value in (*where, *_SETTINGS):
        arguments += [f"--{name}", value]
    with log.open("wb" if fresh else "ab") as output:
        process = subprocess.Popen(
            arguments,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C must not reach the server: requests in flight still need it.
            start_new_session=True,
            preexec_fn=parent_death_signal(signal.SIGTERM),
            umask=0o077,
        )
    with suppress(OSError):  # the disk is full; the socket also identifies the server
        (directory / "redis.pid").write_text(f"{process.pid}\n")
    return process


def _stop_left_over(directory: Path, socket: Path) -> None:
    """Stop a server that an earlier owner left running on the directory."""
    try:
        pid = int((directory / "redis.pid").read_text())
    except (OSError, ValueError):
        pid = 0
    if pid and not _serves(pid, socket):
        pid = 0
    # The server may still listen on the socket if the pid file was lost.
    ask(socket, b"SHUTDOWN")
    give_up = time.monotonic() + STOP_SECONDS
    while (pid and _serves(pid, socket)) or ask(socket, b"PING"):
        if time.monotonic() > give_up:
            raise StartError(
                f"An earlier Redis (pid {pid or 'unknown'}) still uses {directory}: stop it."
            )
        time.sleep(0.01)
    socket.unlink(missing_ok=True)


def _serves(pid: int, socket: Path) -> bool:
    """Return whether the process is a server on the socket; its pid may have been reused."""
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
