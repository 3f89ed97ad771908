"""/healthz, /readyz, /metrics and /metrics/kafka over plain HTTP, for probes and Prometheus.

Rules
- /healthz and /livez succeed if the process can answer; /readyz checks `ready` (Redis, scripts).
- Each worker process serves its metrics on a private unix socket. The process with the
  ops port asks all workers, and every row has the label `worker`.
- One request per connection, with at most 8 KB and 5 seconds. A connection that asks for another
  page goes to the console, if there is one: it serves it in a thread.
- With TLS the handshake is made here, and the console gets the connection with its TLS.
- Other pages than the probes are served only under a name of this machine (`HostNames`). A site can
  let its name resolve to the address of this port. A browser then takes the port's pages for pages
  of that site. An address has no such name. Pages of a worker are served on its own socket only.
- A failure (an error in a page, no free file descriptor) affects one request only.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio.abc import TaskStatus

from korvet.base import logfmt
from korvet.base.metrics import Family, Metrics
from korvet.broker.network import listeners
from korvet.broker.ops.connection import OpsConnection
from korvet.broker.ops.metric_pages import KafkaPage, NoPage, Snapshots, metrics_text
from korvet.config.broker_config import Address, Config
from korvet.security.tls import ListenerTls

RETRY_S = 1.0
"""Seconds until a failed listener is restarted."""
_LONGEST_REQUEST = 8192
_TIMEOUT_S = 5
_PROBES = ("/healthz", "/livez", "/readyz")
_SCRAPE, _SNAPSHOT = "/scrape", "/snapshot"
"""Pages of a worker with its metrics: for Prometheus, and for the console."""
_LIVE = ("/healthz", "/livez")
_TEXT = "text/plain; charset=utf-8"
_MISSING = 404, _TEXT, b"/healthz, /readyz and /metrics are here\n"
_ALIVE = 200, _TEXT, b"ok\n"
_METRICS_TEXT = "text/plain; version=0.0.4; charset=utf-8"

log = logfmt.get("broker.ops")

WRONG_HOST = (
    "This port is not known as {!r}: open it by address or as localhost, or add the name to "
    "console.allowed.hosts.\n"
)


class HostNames:
    """The host names that requests may ask for."""

    def __init__(self, config: Config) -> None:
        addresses = [each.advertised or each.address for each in config.listeners]
        addresses += [config.ops] if config.ops is not None else []
        allowed = config.settings.words("console.allowed.hosts")
        names = {each.host for each in addresses} | set(allowed)
        # An IPv6 address has no name.
        self._names = {"localhost", *map(name_in, names)} - {""}

    def permit(self, host: str) -> bool:
        """Return whether a request with this Host header is served."""
        name = name_in(host)
        return name in self._names or is_address(name)


def name_in(host: str) -> str:
    """Return the name of a host, which may have a port, as names are compared; else nothing."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_address(host: str) -> bool:
    """Return whether the host is an IP address."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


Ready = Callable[[], Awaitable[str | None]]
"""Check that returns None if ready, otherwise the reason as a sentence."""

Answer = tuple[int, str, bytes]


class Page(Protocol):
    """The pages of one broker process, or of all workers."""

    async def answer(self, path: str) -> Answer: ...
    async def snapshots(self) -> Snapshots: ...


class Console(Protocol):
    """Serves the pages that this module does not have, in a thread."""

    def take(self, connection: OpsConnection, request: bytes, page: Page) -> None:
        """Serve and close the connection, of which `request` was read."""

    def close(self) -> None:
        """Stop the thread."""


@dataclass(eq=False, repr=False)
class OpsPage:
    """The pages of one broker process."""

    metrics: Metrics
    ready: Ready
    kafka: KafkaPage | None = None
    notes: Callable[[], Sequence[str]] = tuple

    async def answer(self, path: str) -> Answer:
        if path in _LIVE:
            return _ALIVE
        if path == "/readyz":
            return readiness(await self.ready(), self.notes())
        if path == "/metrics":
            # In a thread: the event loop would serve no client while many rows are written.
            metrics = [(None, self._snapshot())]
            return 200, _METRICS_TEXT, await anyio.to_thread.run_sync(metrics_text, metrics)
        if path == "/metrics/kafka" and self.kafka is not None:
            try:
                return 200, _METRICS_TEXT, await self.kafka.text()
            except NoPage as reason:
                return 503, _TEXT, f"{reason}\n".encode()
        if path in (_SCRAPE, _SNAPSHOT):
            found = self._snapshot() if path == _SCRAPE else self.metrics.snapshot()
            return 200, "application/json", msgspec.json.encode(found)
        return _MISSING

    def _snapshot(self) -> list[Family]:
        # Imported here: a broker without --ops does not need prometheus_client.
        from korvet.broker.ops.service_metrics import process_families

        self.metrics.scraped()
        return [*self.metrics.snapshot(), *process_families()]

    async def snapshots(self) -> Snapshots:
        return [(None, self.metrics.snapshot())]


class StartingPage:
    """The pages of a broker process, of which most are those of `page` once that is set."""

    def __init__(self) -> None:
        self.page: Page | None = None
        self._reason = "the broker is starting"

    def wait(self, reason: str) -> bool:
        """Show why the broker has not started; return whether that is new."""
        is_new = reason != self._reason
        self.page, self._reason = None, reason
        return is_new

    async def answer(self, path: str) -> Answer:
        if self.page is not None:
            return await self.page.answer(path)
        return _ALIVE if path in _LIVE else readiness(self._reason)

    async def snapshots(self) -> Snapshots:
        return [] if self.page is None else await self.page.snapshots()


class WorkerPoolPage:
    """The pages of all workers; each is asked on its socket."""

    def __init__(self, sockets: Sequence[Path]) -> None:
        self._sockets = sockets
        self._notes: Sequence[str] = ()

    async def answer(self, path: str) -> Answer:
        if path in _LIVE:
            return _ALIVE
        if path == "/readyz":
            return readiness(await self._ready(), self._notes)
        if path == "/metrics":
            return 200, _METRICS_TEXT, metrics_text(await self._snapshots(_SCRAPE))
        if path == "/metrics/kafka":
            return await self._kafka_metrics()
        return _MISSING

    async def snapshots(self) -> Snapshots:
        return await self._snapshots(_SNAPSHOT)

    async def _snapshots(self, page: str) -> Snapshots:
        found = [(str(n), await self._snapshot(s, page)) for n, s in enumerate(self._sockets)]
        return [(n, families) for n, families in found if families is not None]

    async def _ready(self) -> str | None:
        for number, path in enumerate(self._sockets):
            status, body = await get(path, "/readyz")
            if status != 200:
                why = body.decode("utf-8", "replace").strip() or "it does not answer"
                return f"worker {number}: {why}"
            self._notes = body.decode("utf-8", "replace").splitlines()[1:]
        return None

    async def _kafka_metrics(self) -> Answer:
        """Return the page of the first worker that answers: every worker has the same rows."""
        for path in self._sockets:
            status, body = await get(path, "/metrics/kafka")
            if status:
                return status, _METRICS_TEXT if status == 200 else _TEXT, body
        return 503, _TEXT, b"no worker answers\n"

    async def _snapshot(self, socket: Path, page: str) -> list[Family] | None:
        status, body = await get(socket, page)
        return msgspec.json.decode(body, type=list[Family]) if status == 200 else None


def ops_tls(config: Config) -> ListenerTls | None:
    """Return the TLS of the ops port, if it has any. Raises ConfigError."""
    return next((ListenerTls(each, config.settings) for each in config.ops_listeners), None)


def readiness(sentence: str | None, notes: Sequence[str] = ()) -> Answer:
    """Return 200 and the notes if there is no reason against it, otherwise 503 with the reason."""
    if sentence is not None:
        return 503, _TEXT, f"{sentence}\n".encode()
    return 200, _TEXT, "".join(f"{line}\n" for line in ("ready", *notes)).encode()


async def serve(
    page: Page,
    where: Address | Path | Sequence[socket.socket],
    console: Console | None = None,
    tls: ListenerTls | None = None,
    hosts: HostNames | None = None,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the pages until cancelled. Raises StartError if the address is in use.

    `hosts` are the names of a port; a worker's socket has none.
    """
    sockets = listeners.bind_ops(where) if isinstance(where, Address | Path) else where

    async def one(accepted: socket.socket) -> None:
        is_taken = False
        connection = OpsConnection(accepted, None if tls is None else tls.context)
        try:
            with anyio.move_on_after(_TIMEOUT_S):
                is_taken = await _exchange(page, connection, console, hosts)
        except Exception as error:
            log.exception("ops page failed", error)
        finally:
            if not is_taken:
                connection.close()

    try:
        async with anyio.create_task_group() as tasks:
            for each in sockets:
                tasks.start_soon(_accept_all, each, lambda taken: tasks.start_soon(one, taken))
            task_status.started()
    finally:
        for each in sockets:
            each.close()


async def _accept_all(listener: socket.socket, serve: Callable[[socket.socket], object]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = await accept(loop, listener)
        except OSError as error:
            log.error("ops listener failed, retrying", error=error)
            await anyio.sleep(RETRY_S)
        else:
            serve(connection)


async def accept(
    loop: asyncio.AbstractEventLoop, listener: socket.socket
) -> tuple[socket.socket, object]:
    """Accept a connection. Raises OSError."""
    return await loop.sock_accept(listener)


async def get(socket: Path, path: str) -> tuple[int, bytes]:
    """Return status and body of a page on a unix socket; status 0 without a response in time."""
    answer = b""
    try:
        with anyio.fail_after(_TIMEOUT_S):
            async with await anyio.connect_unix(socket) as stream:
                await stream.send(f"GET {path} HTTP/1.1\r\nHost: worker\r\n\r\n".encode())
                async for part in stream:
                    answer += part
    except (OSError, TimeoutError, anyio.BrokenResourceError):
        return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    return (int(words[1]), body) if len(words) == 3 and words[1].isdigit() else (0, b"")


async def _exchange(
    page: Page, connection: OpsConnection, console: Console | None, hosts: HostNames | None
) -> bool:
    """Answer one request; return whether the console took the connection."""
    request = b""
    try:
        await connection.start()
        while b"\r\n\r\n" not in request and len(request) <= _LONGEST_REQUEST:
            part = await connection.receive(_LONGEST_REQUEST)
            if not part:
                return False
            request += part
        status, kind, body = await _answer(page, request, hosts)
        if console is not None and status in (404, 405):
            console.take(connection, request, page)
            return True
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        await connection.send(head.encode() + (b"" if request.startswith(b"HEAD ") else body))
    except ConnectionError:
        pass
    return False


async def _answer(page: Page, request: bytes, hosts: HostNames | None) -> Answer:
    words = request.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or b"\r\n\r\n" not in request:
        return 400, _TEXT, b"this is HTTP: GET /metrics HTTP/1.1\n"
    if words[0] not in (b"GET", b"HEAD"):
        return 405, _TEXT, b"GET or HEAD\n"
    path = words[1].partition(b"?")[0].decode("latin-1")
    if hosts is not None and path not in _PROBES:
        if not hosts.permit(host := _host_of(request)):
            return 421, _TEXT, WRONG_HOST.format(host).encode()
        return await answer_on_port(page, path)
    return await page.answer(path)


async def answer_on_port(page: Page, path: str) -> Answer:
    """Return a page of the port, which has none of the pages of a worker's own socket."""
    if path in (_SCRAPE, _SNAPSHOT):
        return 404, _TEXT, b"this is a page of a worker's own socket\n"
    return await page.answer(path)


def _host_of(request: bytes) -> str:
    for line in request.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"host":
            return value.strip().decode("latin-1")
    return ""
