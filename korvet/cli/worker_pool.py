"""`--workers N`: one parent, N broker processes that share the port, all state in Redis.

Rules
- The parent binds the port first and never listens on it: that picks the number and keeps it, and
  the kernel spreads connections over the workers, who listen on it too (SO_REUSEPORT).
- The parent has no threads and no event loop, so it may fork at any time: a worker starts with
  everything imported, and a dead one is replaced.
- A worker whose parent is gone stops by itself: it watches a pipe that only the parent can close.
- Signals are blocked in the parent and taken one at a time; workers unblock them.
"""

import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from korvet import logfmt
from korvet.broker.listeners import unserved
from korvet.cli.broker_process import revive, run_broker, serve_ops, tend
from korvet.cli.errors import complain, sentence
from korvet.cli.serve import announce, announce_legacy
from korvet.config.broker_config import Address, Config
from korvet.embedded_redis import aof

if TYPE_CHECKING:
    from korvet.embedded_redis.server import RedisServer

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM)
_SHORT_LIFE_S = 1.0
_OPS = -1
log = logfmt.get("workers")


class _Failed(Exception):
    """A worker could not start; it has said why."""


def supervise(config: Config, server: "RedisServer | None") -> None:
    """N workers have served and stopped."""
    with _reserve(config.listen) as reserved, _reserve_legacy(config) as legacy:
        host, port = reserved.getsockname()[:2]
        sockets = Path(tempfile.mkdtemp(prefix="korvet-"))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            listen = Address(config.listen.host, port)
            shared = msgspec.structs.replace(config, listen=listen, legacy_listen=_bound(legacy))
            family = _Family(shared, sockets, server)
            try:
                family.start()
                announce(host, port)
                if shared.legacy_listen is not None:
                    announce_legacy(shared.legacy_listen.host, shared.legacy_listen.port)
                family.tend()
            finally:
                family.stop()
        except _Failed:
            raise typer.Exit(2) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            shutil.rmtree(sockets, ignore_errors=True)


def _reserve_legacy(config: Config) -> AbstractContextManager[socket.socket | None]:
    """The same for the port of Kafka 0.7 clients, if there is to be one."""
    where = config.legacy_listen
    return nullcontext() if where is None else _reserve(where, "--legacy-listen")


def _bound(found: socket.socket | None) -> Address | None:
    return None if found is None else Address(*found.getsockname()[:2])


def _reserve(where: Address, option: str = "--listen") -> socket.socket:
    """A socket bound to the address, shared with whoever else asks to share it."""
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


def _refuse_taken(found: socket.socket, address: object, where: Address) -> None:
    """Bound, and nobody else was on that port: sharing is for our own workers."""
    if where.port != 0:
        with socket.socket(found.family, found.type) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)  # type: ignore[arg-type]
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind(address)  # type: ignore[arg-type]


class _Family:
    """The workers, and the process that answers for all of them on the ops port."""

    def __init__(self, config: Config, sockets: Path, server: "RedisServer | None") -> None:
        self._config = config
        self._sockets = [sockets / f"{number}.sock" for number in range(config.workers)]
        self._server = server
        self._life, self._alive = os.pipe()
        self._numbers: dict[int, int] = {}
        self._born: dict[int, float] = {}

    def start(self) -> None:
        """All serve. The first one starts alone, so that a reason not to is said once."""
        _await(self._fork(0))
        for ready in [self._fork(number) for number in range(1, self._config.workers)]:
            _await(ready)
        if self._config.ops is not None:
            _await(self._fork(_OPS))

    def tend(self) -> None:
        """Serving, until a signal says stop and all workers have."""
        stopping = False
        signal.setitimer(signal.ITIMER_REAL, aof.SYNC_S, aof.SYNC_S)
        while self._numbers:
            number = signal.sigwait(_SIGNALS)
            if number == signal.SIGALRM and self._server is not None:
                tend(self._server)
            if number in (signal.SIGTERM, signal.SIGINT):
                stopping = True
                self._tell(signal.Signals(number))
            for dead in self._reap():
                if not stopping:
                    self._replace(dead)
            if self._server is not None and not stopping:
                revive(self._server)

    def stop(self) -> None:
        """Nobody of the family is left."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.SIGALRM in signal.sigpending():
            signal.sigwait([signal.SIGALRM])  # no longer blocked, it would end us
        self._tell(signal.SIGTERM)
        while self._numbers:
            pid, _ = os.waitpid(next(iter(self._numbers)), 0)
            del self._numbers[pid]
        os.close(self._alive)
        os.close(self._life)

    def _tell(self, number: signal.Signals) -> None:
        for pid in self._numbers:
            os.kill(pid, number)

    def _reap(self) -> list[int]:
        """The numbers of those that have died since we looked."""
        dead: list[int] = []
        for pid in list(self._numbers):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                dead.append(self._numbers.pop(pid))
                log.info("worker ended", worker=dead[-1], pid=pid, status=status)
        return dead

    def _replace(self, number: int) -> None:
        log.error("worker died and is started again", worker=number)
        if time.monotonic() - self._born[number] < _SHORT_LIFE_S:
            time.sleep(_SHORT_LIFE_S)
        os.close(self._fork(number))

    def _fork(self, number: int) -> int:
        """A member of the family; the descriptor tells when it serves."""
        ready, tell = os.pipe()
        sys.stdout.flush()
        self._born[number] = time.monotonic()
        pid = os.fork()
        if pid:
            os.close(tell)
            self._numbers[pid] = number
            return ready
        os.close(ready)
        os.close(self._alive)
        # A terminal's Ctrl-C reaches the parent alone, which passes it on: once, not twice.
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os._exit(self._live(number, tell))

    def _live(self, number: int, tell: int) -> int:
        """The whole life of a child, and its exit code."""

        def serving(host: str = "", port: int = 0) -> None:
            # Nobody waits for the one that replaces a dead one.
            with suppress(BrokenPipeError):
                os.write(tell, b"1")
            os.close(tell)

        try:
            if number == _OPS:
                serve_ops(self._config, self._sockets, serving, self._life)
            else:
                own = str(self._sockets[number])
                mine = msgspec.structs.replace(self._config, ops_socket=own, worker=number)
                run_broker(mine, serving, life=self._life)
        except BaseException as error:
            words = sentence(error)
            if words is None:
                log.exception("worker failed", error, worker=number)
            else:
                complain(words)
            return 2
        return 0


def _await(ready: int) -> None:
    """The child serves; _Failed when it ended instead."""
    said = os.read(ready, 1)
    os.close(ready)
    if not said:
        raise _Failed
