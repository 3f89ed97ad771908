"""`--workers N`: a parent and N broker processes that share the port; all state is in Redis.

Rules
- The parent binds the port and does not listen on it: that chooses and reserves the number. The
  kernel distributes connections among the workers, which listen on it (SO_REUSEPORT).
- The parent has no threads and no event loop, so it may fork at any time: a worker starts with
  everything imported, and a dead worker is replaced.
- A worker stops when its parent ends: it watches a pipe that only the parent can close.
- The parent blocks signals and takes them one at a time (sigwait); workers unblock them.
"""

import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from korvet.base import logfmt
from korvet.broker.network.listeners import bind_ops, unserved, url_of
from korvet.cli import systemd
from korvet.cli.broker_process import keep_on_disk, restart_if_dead, run_broker, serve_ops
from korvet.cli.errors import complain, sentence
from korvet.cli.start_lines import Announcement, announce_console, announce_legacy
from korvet.config.broker_config import Config
from korvet.config.listeners import Address, Listener

if TYPE_CHECKING:
    from korvet.embedded_redis.server import RedisServer

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM)
_ENDS = {signal.SIGTERM, signal.SIGINT}
_SIGNAL_CHECK_S = 0.2
"""Seconds between two checks for a signal while a child starts."""
_SHORT_LIFE_S = 1.0
_CHECK_S = 1.0
"""Seconds between two checks of the embedded Redis."""
_OPS = -1
_DISK = -2
"""Numbers of the processes that serve the ops port, and that sync the embedded Redis's file."""
log = logfmt.get("workers")


class _Failed(Exception):
    """A worker failed to start and has reported why."""


def supervise(config: Config, server: "RedisServer | None") -> None:
    """Run N workers until a signal stops them."""
    with ExitStack() as reserved, _reserve_legacy(config) as legacy:
        listeners = [_reserve_listener(each, reserved) for each in config.listeners]
        sockets = Path(tempfile.mkdtemp(prefix="korvet-"))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            shared = msgspec.structs.replace(
                config,
                listeners=tuple(listeners),
                legacy_listen=None if legacy is None else Address(*legacy.getsockname()[:2]),
            )
            ops = None
            if config.ops is not None:
                ops = bind_ops(config.ops, or_free=not config.ops_is_chosen)
            workers = _Workers(shared, sockets, server, ops)
            try:
                workers.start()
                Announcement(shared, server).listening(listeners)
                if shared.legacy_listen is not None:
                    announce_legacy(shared.legacy_listen.host, shared.legacy_listen.port)
                if ops is not None:
                    announce_console(url_of(ops, tls=shared.ops_tls))
                systemd.notify(systemd.READY)
                workers.supervise()
            finally:
                workers.stop()
        except _Failed:
            raise typer.Exit(2) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            shutil.rmtree(sockets, ignore_errors=True)


def _reserve_listener(listener: Listener, reserved: ExitStack) -> Listener:
    """Bind the listener's port until `reserved` ends; return the listener with that port."""
    found = reserved.enter_context(_reserve(listener.address))
    address = Address(listener.address.host, found.getsockname()[1])
    return msgspec.structs.replace(listener, address=address)


def _reserve_legacy(config: Config) -> AbstractContextManager[socket.socket | None]:
    """Bind the port of Kafka 0.7 clients, if it is configured."""
    where = config.legacy_listen
    return nullcontext() if where is None else _reserve(where, "--legacy-listen")


def _reserve(where: Address, option: str = "--listen") -> socket.socket:
    """Bind a socket to the address; the workers may bind it too."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _refuse_taken(found, address, where)
        return found
    except OSError as error:
        raise unserved(option, where, error) from None


def _refuse_taken(sock: socket.socket, address: object, where: Address) -> None:
    """Bind the socket. Raises OSError if another process has the port, which workers share."""
    if where.port != 0:
        with socket.socket(sock.family, sock.type) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)  # type: ignore[arg-type]
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(address)  # type: ignore[arg-type]


class _Workers:
    """The worker processes, and the process that serves the ops port for all of them."""

    def __init__(
        self,
        config: Config,
        sockets: Path,
        server: "RedisServer | None",
        ops: list[socket.socket] | None,
    ) -> None:
        self._config = config
        self._ops = ops
        self._sockets = [sockets / f"{number}.sock" for number in range(config.workers)]
        self._server = server
        self._parent, self._alive = os.pipe()
        self._numbers: dict[int, int] = {}
        self._started: dict[int, float] = {}

    def start(self) -> None:
        """Start all workers. The first starts alone, so that an error is reported once.

        It may wait for Redis: the ops port says so meanwhile.
        """
        if self._server is not None:
            _await(self._fork(_DISK))
        if self._ops is not None:
            _await(self._fork(_OPS))
        _await(self._fork(0))
        for ready in [self._fork(number) for number in range(1, self._config.workers)]:
            _await(ready)

    def supervise(self) -> None:
        """Replace dead workers until a signal, then wait for all to end."""
        stopping = False
        signal.setitimer(signal.ITIMER_REAL, _CHECK_S, _CHECK_S)
        while self._serving:
            number = signal.sigwait(_SIGNALS)
            systemd.notify(systemd.WATCHDOG)
            if number in (signal.SIGTERM, signal.SIGINT):
                systemd.notify(systemd.STOPPING)
                stopping = True
                self._signal(signal.Signals(number))
            for dead in self._reap():
                if not stopping:
                    self._replace(dead)
            if self._server is not None and not stopping:
                restart_if_dead(self._server)

    def stop(self) -> None:
        """Stop all workers and wait for them."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.SIGALRM in signal.sigpending():
            signal.sigwait([signal.SIGALRM])  # once unblocked it would end this process
        self._signal(signal.SIGTERM)
        while self._serving:
            pid, _ = os.waitpid(self._serving[0], 0)
            del self._numbers[pid]
        for pid in self._numbers:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        os.close(self._alive)
        os.close(self._parent)

    @property
    def _serving(self) -> list[int]:
        """The pids of all but the process that syncs the file, which ends last."""
        return [pid for pid, number in self._numbers.items() if number != _DISK]

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._serving:
            os.kill(pid, number)

    def _reap(self) -> list[int]:
        """Return the numbers of the workers that ended since the last call."""
        dead: list[int] = []
        for pid in list(self._numbers):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                dead.append(self._numbers.pop(pid))
                log.info("worker ended", worker=dead[-1], pid=pid, status=status)
        return dead

    def _replace(self, number: int) -> None:
        log.error("worker died, restarting", worker=number)
        if time.monotonic() - self._started[number] < _SHORT_LIFE_S:
            time.sleep(_SHORT_LIFE_S)
        os.close(self._fork(number))

    def _fork(self, number: int) -> int:
        """Fork a worker; one byte on the returned descriptor says that it serves."""
        ready, report = os.pipe()
        sys.stdout.flush()
        self._started[number] = time.monotonic()
        pid = os.fork()
        if pid:
            os.close(report)
            self._numbers[pid] = number
            return ready
        os.close(ready)
        os.close(self._alive)
        systemd.forget()
        # Ctrl-C must reach the worker once, from the parent, and not also from the terminal.
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os._exit(self._run_child(number, report))

    def _run_child(self, number: int, report: int) -> int:
        """Run a child process and return its exit code."""

        def serving(_: Sequence[Listener] = ()) -> None:
            # The parent does not wait for a worker that replaces a dead one.
            with suppress(BrokenPipeError):
                os.write(report, b"1")
            os.close(report)

        try:
            if number == _OPS:
                assert self._ops is not None
                serve_ops(self._config, self._ops, self._sockets, serving, self._parent)
            elif number == _DISK:
                assert self._server is not None
                keep_on_disk(self._server.disk, serving, self._parent)
            else:
                own = str(self._sockets[number])
                mine = msgspec.structs.replace(self._config, ops_socket=own, worker=number)
                run_broker(mine, serving, parent=self._parent)
        except BaseException as error:
            words = sentence(error)
            if words is None:
                log.exception("worker failed", error, worker=number)
            else:
                complain(words)
            return 2
        return 0


def _await(ready: int) -> None:
    """Wait until the child serves. Raises _Failed if it ended, Exit after a signal."""
    while not select.select([ready], [], [], _SIGNAL_CHECK_S)[0]:
        systemd.notify(systemd.EXTENDED)
        if not _ENDS.isdisjoint(signal.sigpending()):
            signal.sigwait(_ENDS)
            raise typer.Exit
    served = os.read(ready, 1)
    os.close(ready)
    if not served:
        raise _Failed
