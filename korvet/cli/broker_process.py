"""Run one broker process: event loop, signals, embedded Redis."""

import gc
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio import CancelScope
from anyio.abc import TaskStatus

from korvet.base import logfmt
from korvet.broker.client_listeners import refresh_tls
from korvet.broker.ops import http
from korvet.broker.ops.http import HostNames
from korvet.broker.server import serve
from korvet.cli import event_loop, systemd
from korvet.config.broker_config import Config
from korvet.config.listeners import Listener
from korvet.console.thread import ConsoleThread
from korvet.legacy.listener import LegacyListener

if TYPE_CHECKING:
    from korvet.embedded_redis.disk import Disk
    from korvet.embedded_redis.server import RedisServer

Announce: TypeAlias = Callable[[Sequence[Listener]], None]
AnnounceLegacy: TypeAlias = Callable[[str, int], None]
AnnounceConsole: TypeAlias = Callable[[str], None]
_RESTART_CHECK_S = 1.0
log = logfmt.get("process")


def ignore(*where: object) -> None:
    """Announce nothing."""


def run_broker(
    config: Config,
    announce: Announce,
    server: "RedisServer | None" = None,
    parent: int | None = None,
    announce_legacy: AnnounceLegacy = ignore,
    announce_console: AnnounceConsole = ignore,
) -> None:
    """Serve until SIGTERM or SIGINT, or until the parent closes the pipe `parent`.

    The first signal lets requests in flight finish; the second stops at once. `server` is
    restarted if it dies.
    """
    # Imported modules are never freed, and requests leave few cycles for the collector.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    event_loop.run(_main, config, announce, announce_legacy, announce_console, server, parent)


async def _main(
    config: Config,
    announce: Announce,
    announce_legacy: AnnounceLegacy,
    announce_console: AnnounceConsole,
    server: "RedisServer | None",
    parent: int | None,
) -> None:
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, stop, tasks.cancel_scope)
        if server is not None:
            tasks.start_soon(_restart_if_dead, server)
            tasks.start_soon(_keep_on_disk, server.disk)
        if parent is not None:
            tasks.start_soon(_stop_with_parent, parent, stop)
        tasks.start_soon(systemd.keep_alive)
        starting = await tasks.start(_extend_start)

        def announce_ready(listeners: Sequence[Listener]) -> None:
            starting.cancel()
            announce(listeners)
            systemd.notify(systemd.READY)

        await serve(
            config,
            on_listening=announce_ready,
            stop=stop,
            extra=LegacyListener(announce_legacy),
            console=ConsoleThread(config),
            on_console=announce_console,
        )
        tasks.cancel_scope.cancel()


async def _extend_start(*, task_status: TaskStatus[CancelScope]) -> None:
    with CancelScope() as scope:
        task_status.started(scope)
        await systemd.keep_starting()


async def _stop_on_signal(stop: anyio.Event, scope: CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            if stop.is_set():
                log.warning("stopping at once", signal=signal.Signals(number).name)
                scope.cancel()
                return
            log.info("stopping", signal=signal.Signals(number).name)
            systemd.notify(systemd.STOPPING)
            stop.set()


async def _restart_if_dead(server: "RedisServer") -> None:
    while True:
        await anyio.sleep(_RESTART_CHECK_S)
        restart_if_dead(server)  # in this thread: the kernel stops a server with its thread


def restart_if_dead(server: "RedisServer") -> None:
    """Restart the embedded Redis if it died; log why if that fails."""
    if server.alive():
        return
    try:
        log.error("embedded Redis died, restarting", redis_log=server.last_log_lines())
        server.relaunch()
    except OSError as error:
        log.error("embedded Redis restart failed", error=error.strerror)


async def _keep_on_disk(disk: "Disk") -> None:
    try:
        await anyio.to_thread.run_sync(disk.run, abandon_on_cancel=True)
    finally:
        disk.stop()


def keep_on_disk(disk: "Disk", serving: Callable[[], None], parent: int) -> None:
    """Sync the embedded Redis's file, in a process for that, until the parent ends."""
    Thread(target=disk.run, daemon=True).start()
    serving()
    os.read(parent, 1)


async def _stop_with_parent(parent: int, stop: anyio.Event) -> None:
    """Stop when the parent ends: the pipe carries no data, so only its end wakes us."""
    await anyio.wait_readable(parent)
    stop.set()


def serve_ops(
    config: Config,
    ops: Sequence[socket.socket],
    workers: Sequence[Path],
    serving: Callable[[], None],
    parent: int,
) -> None:
    """Serve the listening sockets of the ops port for all workers until a signal."""
    event_loop.run(_ops, config, ops, workers, serving, parent)


async def _ops(
    config: Config,
    ops: Sequence[socket.socket],
    workers: Sequence[Path],
    serving: Callable[[], None],
    parent: int,
) -> None:
    console = ConsoleThread(config)
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, stop, tasks.cancel_scope)
        tasks.start_soon(_stop_with_parent, parent, stop)
        tls = http.ops_tls(config)
        tasks.start_soon(refresh_tls, [tls] if tls is not None else [])
        page, hosts = http.WorkerPoolPage(workers), HostNames(config)
        await tasks.start(http.serve, page, ops, console, tls, hosts)
        serving()
        await stop.wait()
        console.close()
        tasks.cancel_scope.cancel()
