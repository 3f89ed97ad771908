"""/healthz, /readyz, /metrics and /metrics/kafka over plain HTTP, for probes and Prometheus.

Rules
- /healthz and /livez succeed if the process can answer; /readyz checks `ready` (Redis, scripts).
- Each worker process serves its metrics on a private unix socket (/snapshot). The process with the
  ops port asks all workers, and every row has the label `worker`.
- One request per connection, with at most 8 KB and 5 seconds.
- A failure (an error in a page, no free file descriptor) affects one request only.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import anyio
import msgspec
from anyio.abc import ByteStream, Listener, SocketStream, TaskStatus

from korvet import logfmt
from korvet.broker import listeners
from korvet.broker.kafka_metrics import NoPage
from korvet.config.broker_config import Address
from korvet.config.setting import StartError
from korvet.metrics import Family, Metrics

AGAIN_S = 1.0
"""Seconds until a failed listener is restarted."""
_LONGEST_REQUEST = 8192
_PATIENCE_S = 5
_TEXT = "text/plain; charset=utf-8"
_METRICS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
            503: "Service Unavailable"}  # fmt: skip

log = logfmt.get("broker.ops")

Ready = Callable[[], Awaitable[str | None]]
"""Check that returns None if ready, otherwise the reason as a sentence."""

Answer = tuple[int, str, bytes]


class KafkaMetrics(Protocol):
    """The page /metrics/kafka."""

    async def text(self) -> bytes: ...


class OpsPage:
    """The pages of one broker process."""

    def __init__(self, metrics: Metrics, ready: Ready, kafka: KafkaMetrics | None = None) -> None:
        self._metrics = metrics
        self._ready = ready
        self._kafka = kafka

    async def answer(self, path: str) -> Answer:
        if path in ("/healthz", "/livez"):
            return 200, _TEXT, b"ok\n"
        if path == "/readyz":
            return readiness(await self._ready())
        if path == "/metrics":
            return 200, _METRICS_TEXT, exposition([(None, self._snapshot())])
        if path == "/metrics/kafka" and self._kafka is not None:
            return await _kafka_metrics(self._kafka)
        if path == "/snapshot":
            return 200, "application/json", msgspec.json.encode(self._snapshot())
        return 404, _TEXT, b"/healthz, /readyz and /metrics are here\n"

    def _snapshot(self) -> list[Family]:
        # Imported here: a broker without --ops does not need prometheus_client.
        from korvet.broker.process_metrics import process_families

        self._metrics.scraped()
        return [*self._metrics.snapshot(), *process_families()]


class WorkerPoolPage:
    """The pages of all workers; each is asked on its socket."""

    def __init__(self, sockets: Sequence[Path]) -> None:
        self._sockets = sockets

    async def answer(self, path: str) -> Answer:
        if path in ("/healthz", "/livez"):
            return 200, _TEXT, b"ok\n"
        if path == "/readyz":
            return readiness(await self._ready())
        if path == "/metrics":
            found = [(str(n), await self._snapshot(s)) for n, s in enumerate(self._sockets)]
            return 200, _METRICS_TEXT, exposition([(n, f) for n, f in found if f is not None])
        if path == "/metrics/kafka":
            return await self._kafka_metrics()
        return 404, _TEXT, b"/healthz, /readyz and /metrics are here\n"

    async def _ready(self) -> str | None:
        for number, socket in enumerate(self._sockets):
            status, body = await get(socket, "/readyz")
            if status != 200:
                why = body.decode("utf-8", "replace").strip() or "it does not answer"
                return f"worker {number}: {why}"
        return None

    async def _kafka_metrics(self) -> Answer:
        """Return the page of the first worker that answers: every worker has the same rows."""
        status, body = 0, b""
        for socket in self._sockets:
            status, body = await get(socket, "/metrics/kafka")
            if status:
                break
        if status == 200:
            return 200, _METRICS_TEXT, body
        return 503, _TEXT, body or b"no worker answers\n"

    async def _snapshot(self, socket: Path) -> list[Family] | None:
        status, body = await get(socket, "/snapshot")
        return msgspec.json.decode(body, type=list[Family]) if status == 200 else None


async def _kafka_metrics(page: KafkaMetrics) -> Answer:
    try:
        return 200, _METRICS_TEXT, await page.text()
    except NoPage as reason:
        return 503, _TEXT, f"{reason}\n".encode()


def readiness(sentence: str | None) -> Answer:
    """Return 200 if there is no reason against it, otherwise 503 with the reason."""
    return (200, _TEXT, b"ready\n") if sentence is None else (503, _TEXT, f"{sentence}\n".encode())


async def serve(
    page: OpsPage | WorkerPoolPage,
    where: Address | Path,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the pages until cancelled. Raises StartError if the address is in use."""
    try:
        listener = await _listen(where)
    except OSError as error:
        if isinstance(where, Address):
            raise listeners.unserved("--ops", where, error) from None
        raise StartError(f"{where} cannot be served: {error.strerror or error}.") from None

    async def one(stream: ByteStream) -> None:
        try:
            async with stream:
                with anyio.move_on_after(_PATIENCE_S):
                    await _exchange(page, stream)
        except Exception as error:
            log.exception("ops page failed", error)

    async with listener:
        task_status.started()
        while True:
            try:
                await listener.serve(one)
            except* OSError as errors:
                log.error("ops listener failed, retrying", error=_first(errors))
            await anyio.sleep(AGAIN_S)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _listen(where: Address | Path) -> Listener[SocketStream]:
    if isinstance(where, Path):
        return await anyio.create_unix_listener(where, mode=0o600)
    return await anyio.create_tcp_listener(local_host=where.host, local_port=where.port)


async def get(socket: Path, path: str) -> tuple[int, bytes]:
    """Return status and body of a page on a unix socket; status 0 without a response in time."""
    answer = b""
    try:
        with anyio.fail_after(_PATIENCE_S):
            async with await anyio.connect_unix(socket) as stream:
                await stream.send(f"GET {path} HTTP/1.1\r\nHost: worker\r\n\r\n".encode())
                async for part in stream:
                    answer += part
    except (OSError, TimeoutError, anyio.BrokenResourceError):
        return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    return (int(words[1]), body) if len(words) == 3 and words[1].isdigit() else (0, b"")


async def _exchange(page: OpsPage | WorkerPoolPage, stream: ByteStream) -> None:
    request = b""
    try:
        while b"\r\n\r\n" not in request and len(request) <= _LONGEST_REQUEST:
            request += await stream.receive(_LONGEST_REQUEST)
        status, kind, body = await _answer(page, request)
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        await stream.send(head.encode() + (b"" if request.startswith(b"HEAD ") else body))
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return


async def _answer(page: OpsPage | WorkerPoolPage, request: bytes) -> Answer:
    words = request.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or b"\r\n\r\n" not in request:
        return 400, _TEXT, b"this is HTTP: GET /metrics HTTP/1.1\n"
    if words[0] not in (b"GET", b"HEAD"):
        return 405, _TEXT, b"GET or HEAD\n"
    return await page.answer(words[1].partition(b"?")[0].decode("latin-1"))


def exposition(snapshots: Sequence[tuple[str | None, list[Family]]]) -> bytes:
    """Return the metrics of these processes as Prometheus text."""
    # Imported here: a broker without --ops does not need prometheus_client.
    from korvet.broker.prometheus import text

    return text(snapshots)
