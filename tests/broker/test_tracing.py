"""Check the spans that a collector gets from a broker process with real clients."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import korvet.broker
from korvet.broker.telemetry import exporter_of, open_tracing
from korvet.broker.tracing import MAX_CONTEXTS, contexts_in
from korvet.config.setting import StartError
from korvet.wire import batch_builder, compression
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.support.raw_client import Peer, batch, to_produce, until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = f"00-{TRACE}-{PARENT}-01"
OTHER = f"00-{TRACE[::-1]}-{PARENT[::-1]}-01"


class Collector:
    """An OTLP endpoint; `spans` are the received ones, as protobuf messages."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                    collector.resources.append(attributes(each.resource))
                    for scope in each.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def named(self, name: str) -> list[Any]:
        return [span for span in list(self.spans) if span.name == name]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


def attributes(of: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in of.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


@pytest.fixture
def traced(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Broker]:
    """A broker that exports its spans to the collector."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.close()
    assert "Traceback" not in broker.log


def test_a_request_is_a_span_that_follows_its_records_with_children(
    traced: Broker, collector: Collector
) -> None:
    topic = create_topic(traced.address, storage_format="batch", offset_mode="dense")
    consumer = Consumer(
        {"bootstrap.servers": traced.address, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])

    def waited() -> bool:
        consumer.poll(0.1)
        fetched = {span.span_id for span in collector.named("Fetch")}
        return any(span.parent_span_id in fetched for span in collector.named("wait"))

    assert until(waited, 30)
    producer = Producer({"bootstrap.servers": traced.address, "linger.ms": 0, "log_level": 0})
    producer.produce(topic, b"v", headers={"traceparent": CONTEXT})
    producer.flush(30)
    assert until(lambda: consumer.poll(0.1) is not None)
    consumer.close()

    assert until(lambda: bool(collector.named("Produce")), 30)
    (span,) = collector.named("Produce")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    found = attributes(span)
    assert found["messaging.system"] == "kafka"
    assert found["messaging.destination.name"] == topic
    assert span.end_time_unix_nano > span.start_time_unix_nano
    below = [each for each in collector.spans if each.parent_span_id == span.span_id]
    assert [each.name for each in below] == ["log.append"]
    assert attributes(below[0])["db.system.name"] == "redis"

    def linked() -> list[Any]:
        return [span for span in collector.named("Fetch") if span.links]

    assert until(lambda: bool(linked()), 30)
    assert linked()[0].links[0].trace_id.hex() == TRACE
    joined = attributes(collector.named("JoinGroup")[0])
    assert joined["messaging.consumer.group.name"] == "g"
    assert collector.resources[0]["service.name"] == "korvet"
    assert {span.name for span in collector.spans if not span.parent_span_id} <= {
        "ApiVersions",
        "Metadata",
        "CreateTopics",
        "Produce",
        "Fetch",
        "FindCoordinator",
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "OffsetFetch",
        "OffsetCommit",
        "LeaveGroup",
        "ListOffsets",
        "InitProducerId",
        "GetTelemetrySubscriptions",
    }, "background work has no spans"


def test_an_error_is_on_the_span(traced: Broker, collector: Collector) -> None:
    with Peer(traced.address) as peer:
        peer.ask("Produce", 9, to_produce("no.such topic", batch([b"v"])))
    assert until(lambda: bool(collector.named("Produce")), 30)
    (span,) = collector.named("Produce")
    assert attributes(span)["error.type"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert span.status.code == 2


def test_a_stop_exports_what_is_left(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    with Broker(tmp_path) as broker:
        create_topic(broker.address)
    assert collector.named("CreateTopics")


# Without a broker.


def header_batch(*contexts: str, codec: int = compression.NONE) -> bytes:
    headers = [("traceparent", each.encode()) for each in contexts]
    rows: Any = [(0, 1_700_000_000_000, b"k", b"v" * 100, headers)]
    return bytes(batch_builder.build(rows, codec=codec))


@pytest.mark.parametrize("codec", range(5))
def test_contexts_are_found_in_every_codec(codec: int) -> None:
    assert contexts_in([header_batch(CONTEXT, OTHER, codec=codec)]) == [CONTEXT, OTHER]


def test_a_context_counts_once_and_there_are_not_too_many() -> None:
    assert contexts_in([header_batch(CONTEXT)] * 3) == [CONTEXT]
    many = [f"00-{number:032x}-{PARENT}-01" for number in range(1, 100)]
    assert contexts_in([header_batch(*many)]) == many[:MAX_CONTEXTS]


@pytest.mark.parametrize("data", [b"", b"short", b"\xff" * 200, header_batch("nonsense")])
def test_what_is_no_context_is_left_out(data: bytes) -> None:
    assert contexts_in([data, memoryview(data)]) == []


@pytest.mark.parametrize(
    ("environ", "exporter"),
    [
        ({}, "none"),
        ({"OTEL_SERVICE_NAME": "x"}, "none"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, "none"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, "none"),
    ],
)
def test_the_variables_of_opentelemetry_decide(environ: dict[str, str], exporter: str) -> None:
    assert exporter_of(environ) == exporter


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "must be one of otlp, console, none, not 'zipkin'"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "must be http/protobuf, not 'grpc'",
        ),
    ],
)
def test_what_cannot_be_exported_is_an_error_at_start(environ: dict[str, str], words: str) -> None:
    with pytest.raises(StartError, match=words):
        exporter_of(environ)


def test_without_the_extra_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "korvet.broker.tracing", None)
    monkeypatch.delattr(korvet.broker, "tracing")
    assert open_tracing({"OTEL_TRACES_EXPORTER": "otlp"}, 0) is None
    assert "tracing is off: OpenTelemetry is not installed" in caplog.text


def test_a_broker_without_tracing_does_not_import_it() -> None:
    words = "import sys, korvet.broker.server, korvet.cli.broker_process as process\n"
    words += "sys.exit('korvet.broker.tracing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0
    sources = Path(korvet.__file__).parent.rglob("*.py")
    pattern = re.compile(r"^\s*(from|import) opentelemetry", re.MULTILINE)
    importing = {each.name for each in sources if pattern.search(each.read_text())}
    assert importing == {"tracing.py"}
