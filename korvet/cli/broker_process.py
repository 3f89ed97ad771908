"""One broker process: its event loop, its signals, its Redis."""

import gc
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio import CancelScope

from korvet import logfmt
from korvet.broker import http
from korvet.broker.server import serve
from korvet.config.broker_config import Config
from korvet.embedded_redis import aof

if TYPE_CHECKING:
    from korvet.embedded_redis.server import RedisServer

Announce: TypeAlias = Callable[[str, int], None]
_LOOK_S = 1.0
log = logfmt.get("process")


def nobody(host: str, port: int) -> None:
    """Nobody waits to hear of this port."""


def run_broker(
    config: Config,
    announce: Announce,
    server: "RedisServer | None" = None,
    life: int | None = None,
    announce_legacy: Announce = nobody,
) -> None:
    """Serves until SIGTERM or SIGINT, or until `life` (a pipe of the parent's) closes.

    The first signal lets what is in flight finish; the second ends at once. `server` is started
    again should it die.
    """
    # What is loaded stays; requests leave little that only the collector could free.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    anyio.run(_main, config, announce, announce_legacy, server, life, backend_options=_loop())


def _loop() -> dict[str, object]:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return {}
    return {"use_uvloop": True}


async def _main(
    config: Config,
    announce: Announce,
    announce_legacy: Announce,
    server: "RedisServer | None",
    life: int | None,
) -> None:
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_obey_signals, stop, tasks.cancel_scope)
        if server is not None:
            tasks.start_soon(_keep_alive, server)
            tasks.start_soon(_keep_tended, server)
        if life is not None:
            tasks.start_soon(_follow, life, stop)
        await serve(config, on_listening=announce, on_legacy=announce_legacy, stop=stop)
        tasks.cancel_scope.cancel()


async def _obey_signals(stop: anyio.Event, scope: CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            if stop.is_set():
                log.warning("stopping at once", signal=signal.Signals(number).name)
                scope.cancel()
                return
            log.info("stopping", signal=signal.Signals(number).name)
            stop.set()


async def _keep_alive(server: "RedisServer") -> None:
    while True:
        await anyio.sleep(_LOOK_S)
        revive(server)  # in this thread: the kernel would stop the server when another one ends


def revive(server: "RedisServer") -> None:
    """Our Redis runs; or, if it died and cannot be started now, the log says why."""
    if server.alive():
        return
    try:
        log.error("our Redis died and is started again", said=server.last_words())
        server.relaunch()
    except OSError as error:
        log.error("our Redis cannot be started yet", error=error.strerror)


async def _keep_tended(server: "RedisServer") -> None:
    while True:
        await anyio.sleep(aof.SYNC_S)
        await anyio.to_thread.run_sync(tend, server, abandon_on_cancel=True)


def tend(server: "RedisServer") -> None:
    """What our Redis has acknowledged is on disk, or the log says why not; its file is tidy."""
    try:
        server.tend()
    except OSError as error:
        log.error("the append-only file does not get to disk", error=error.strerror)


async def _follow(life: int, stop: anyio.Event) -> None:
    """Stops when the parent is gone: the pipe holds nothing, so only its end can wake us."""
    await anyio.wait_readable(life)
    stop.set()


def serve_ops(
    config: Config, sockets: Sequence[Path], serving: Callable[[], None], life: int
) -> None:
    """The ops port answers for all workers until told to stop."""
    anyio.run(_ops, config, sockets, serving, life, backend_options=_loop())


async def _ops(
    config: Config, sockets: Sequence[Path], serving: Callable[[], None], life: int
) -> None:
    assert config.ops is not None
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_obey_signals, stop, tasks.cancel_scope)
        tasks.start_soon(_follow, life, stop)
        await tasks.start(http.serve, http.WorkerPoolPage(sockets), config.ops)
        serving()
        await stop.wait()
        tasks.cancel_scope.cancel()
