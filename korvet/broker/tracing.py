"""OpenTelemetry spans: one per request, with children for script calls, commands and waits.

Rules
- This module is imported only if tracing is on: nothing else imports OpenTelemetry.
- A traced Produce request is decoded, not answered from a template: only `Deferred` answers make
  templates.
- A span of a request follows the trace context of its records, if they have one; of several, and of
  fetched records, the span has links. W3C's header `traceparent` is read, in the batches that are
  not compressed and in small compressed ones.
- Batched appends of several requests are one script call, a child of the first one's span.
- A trace context is found in the headers of records without decoding them: a header is its key's
  length, the key, its value's length and the value, and `traceparent` has one length.
"""

import re
import sys
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer

from korvet import __version__
from korvet.apis import Api
from korvet.base.errors import ErrorCode
from korvet.broker import authorization
from korvet.broker.error_responses import first_error
from korvet.context import Context
from korvet.scripts.call import Arg, Call, Reply
from korvet.store.async_store import AsyncStore
from korvet.store.calls import ReplyWaiter, fail, resolve
from korvet.store.notifications import Notifier, Subscription
from korvet.wire import compression
from korvet.wire.records import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE, MAGIC, MAGIC_AT, Buffer
from korvet.wire.schema import Message

MAX_CONTEXTS = 32
"""Max contexts of one request."""
MAX_DECOMPRESSED_BYTES = 1 << 20
"""Max size of the records of a compressed batch that is searched."""
_HEADER = re.compile(rb"\x16traceparent\x6e(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})")


def contexts_in(parts: Iterable[Buffer]) -> list[str]:
    """Return the different values of `traceparent` in these batches, at most MAX_CONTEXTS."""
    found: dict[str, None] = {}
    for part in parts:
        for value in _HEADER.findall(_records_of(part)):
            found[value.decode()] = None
            if len(found) == MAX_CONTEXTS:
                return list(found)
    return list(found)


def produced_parts(request: Any) -> Iterator[Buffer]:
    """Yield the batches of a Produce request."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records:
                yield partition.records


def fetched_parts(response: Any) -> Iterator[Buffer]:
    """Yield the buffers of a Fetch response."""
    for topic in response.responses:
        for partition in topic.partitions:
            yield from partition.records or ()


def _records_of(batch: Buffer) -> Buffer:
    """Return the records of a compressed batch; any other bytes as they are."""
    if len(batch) < HEADER_SIZE or batch[MAGIC_AT] != MAGIC:
        return batch
    codec = batch[ATTRIBUTES_AT + 1] & CODEC_MASK
    if not codec:
        return batch
    try:
        records = memoryview(batch)[HEADER_SIZE:]
        return compression.decompress(codec, records, MAX_DECOMPRESSED_BYTES)
    except Exception:  # the validator reports it
        return b""


R = TypeVar("R", bound=Reply)
SCOPE = "korvet"


class Tracing:
    """The spans of one broker process."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self.tracer = provider.get_tracer(SCOPE, __version__)

    @classmethod
    def open(cls, exporter: str, environ: Mapping[str, str], node_id: int) -> Self:
        """Start the export; the SDK reads the other OTEL_ variables itself."""
        attributes: dict[str, Any] = {"service.version": __version__, "korvet.node.id": node_id}
        named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        if not named:
            attributes["service.name"] = "korvet"
        span_exporter: SpanExporter = (
            OTLPSpanExporter() if exporter == "otlp" else ConsoleSpanExporter(out=sys.stderr)
        )
        provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(span_exporter))
        return cls(provider)

    def close(self) -> None:
        """Export what is left. Blocks."""
        self._provider.shutdown()

    def store_type(self) -> type[AsyncStore]:
        """Return the store whose calls are child spans."""
        return type("TracedStore", (_TracedStore,), {"tracer": self.tracer})

    def notifier_type(self) -> type[Notifier]:
        """Return the notifier whose waits are child spans."""
        return type("TracedNotifier", (_TracedNotifier,), {"tracer": self.tracer})

    def handle(self, row: Api, request: Any, context: Context) -> Awaitable[Message | None]:
        """Call the handler in a span of the request."""
        contexts = contexts_in(produced_parts(request)) if row.name == "Produce" else []
        remote = [_remote(each) for each in contexts]
        parent = remote[0] if len(remote) == 1 else None
        above = None if parent is None else trace.NonRecordingSpan(parent)
        span = self.tracer.start_span(
            row.name,
            context=None if above is None else trace.set_span_in_context(above),
            kind=SpanKind.SERVER,
            attributes=_attributes(row, request, context),
            links=[] if parent is not None else list(map(Link, remote)),
        )
        with trace.use_span(span, end_on_exit=False):
            try:
                answer = authorization.handle(row, request, context)
            except BaseException as error:
                _end(span, error)
                raise
        return self._finished(span, answer, row, context.version)

    async def _finished(
        self, span: Span, answer: Awaitable[Message | None], row: Api, version: int
    ) -> Message | None:
        """Return the response, and end the span."""
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                response = await answer
        except BaseException as error:
            _end(span, error)
            raise
        code = first_error(response, version) if response is not None else 0
        if code:
            span.set_attribute("error.type", ErrorCode(code).name)
            span.set_status(Status(StatusCode.ERROR, ErrorCode(code).name))
        if row.name == "Fetch" and span.is_recording():
            for each in contexts_in(fetched_parts(response)):
                span.add_link(_remote(each))
        span.end()
        return response


def _attributes(row: Api, request: Any, context: Context) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.client.id": context.client_id or "",
        "client.address": context.client_host,
        "kafka.api.key": row.key,
        "kafka.api.version": context.version,
    }
    topics = getattr(request, "topic_data", None) or getattr(request, "topics", None) or ()
    names = {getattr(each, "name", None) or getattr(each, "topic", None) for each in topics}
    if len(names) == 1 and isinstance(name := names.pop(), str):
        found["messaging.destination.name"] = name
    group = getattr(request, "group_id", None)
    if isinstance(group, str):
        found["messaging.consumer.group.name"] = group
    return found


def _remote(traceparent: str) -> SpanContext:
    """Return the context that a `traceparent` header names."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True,
        trace_flags=trace.TraceFlags(int(flags, 16) & 1),
    )  # fmt: skip


def _end(span: Span, error: BaseException) -> None:
    """End the span of a failed request or call."""
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()


class _TracedWaiter:
    """Ends the span of a call when its reply arrives."""

    __slots__ = ("_span", "_waiter")

    def __init__(self, waiter: ReplyWaiter[Any], span: Span) -> None:
        self._waiter = waiter
        self._span = span

    def done(self) -> bool:
        """Return False: the span ends with the reply, also if its caller is gone."""
        return False

    def set_result(self, reply: Any) -> None:
        self._span.end()
        resolve(self._waiter, reply)

    def set_exception(self, error: BaseException) -> None:
        _end(self._span, error)
        fail(self._waiter, error)


class _TracedStore(AsyncStore):
    tracer: Tracer

    def send(self, call: Call[R], waiter: ReplyWaiter[R]) -> None:
        span = self._child("EVALSHA", call.script.name)
        super().send(call, waiter if span is None else _TracedWaiter(waiter, span))

    def submit_command(self, *command: Arg) -> Any:
        word = command[0] if isinstance(command[0], str) else bytes(command[0]).decode()
        span = self._child(word, word)
        future = super().submit_command(*command)
        if span is not None:
            future.add_done_callback(lambda done: span.end())
        return future

    def _child(self, operation: str, name: str) -> Span | None:
        """Start a span below the current one, if there is one that is recorded."""
        if not trace.get_current_span().is_recording():
            return None
        attributes = {"db.system.name": "redis", "db.operation.name": operation}
        if name != operation:
            attributes["korvet.script"] = name
        return self.tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)


class _TracedSubscription(Subscription):
    __slots__ = ("_tracer",)

    def __init__(self, tracer: Tracer, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._tracer = tracer

    async def wait(self, timeout_s: float) -> set[str]:
        if not trace.get_current_span().is_recording():
            return await super().wait(timeout_s)
        with self._tracer.start_as_current_span("wait") as span:
            news = await super().wait(timeout_s)
            span.set_attribute("korvet.wait.notified", bool(news))
            return news


class _TracedNotifier(Notifier):
    tracer: Tracer

    def listen(self, channels: Iterable[str], since: int | None = None) -> Subscription:
        return _TracedSubscription(self.tracer, self, tuple(channels), since)
