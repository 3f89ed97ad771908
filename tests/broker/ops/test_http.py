"""Check the responses of the ops port to probes and Prometheus, from one process or several."""

import errno
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from korvet.base.metrics import Counter, Histogram, Metrics
from korvet.broker.network import listeners
from korvet.broker.ops import http
from korvet.broker.ops.http import HostNames, OpsPage, WorkerPoolPage, get, serve
from korvet.broker.ops.metric_pages import metrics_text
from korvet.config.broker_config import Address, load
from korvet.config.setting import StartError


def rows(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def always(sentence: str | None) -> Callable[[], Awaitable[str | None]]:
    async def ready() -> str | None:
        return sentence

    return ready


async def ask(path: Path, request: bytes) -> bytes:
    answer = b""
    async with await anyio.connect_unix(path) as stream:
        await stream.send(request)
        async for part in stream:
            answer += part
    return answer


def test_counts_become_prometheus_text() -> None:
    metrics = Metrics()
    metrics.answered("Produce", "NONE", 0.0003)
    metrics.answered("Produce", "NONE", 0.02)
    metrics.answered("Fetch", "OFFSET_OUT_OF_RANGE", 99)
    metrics.received_bytes.add(120)
    metrics.connections.value = 3
    metrics.group_lag.ask = lambda: {("workers", "orders", "0"): 7}
    found = rows(metrics_text([(None, metrics.snapshot())]))
    assert found["korvet_requests_total", (("api", "Produce"), ("error", "NONE"))] == 2
    assert found["korvet_received_bytes_total", ()] == 120
    assert found["korvet_connections", ()] == 3
    produce = ("api", "Produce")
    assert found["korvet_request_seconds_bucket", (produce, ("le", "0.00025"))] == 0
    assert found["korvet_request_seconds_bucket", (produce, ("le", "0.0005"))] == 1
    assert found["korvet_request_seconds_bucket", (produce, ("le", "+Inf"))] == 2
    assert found["korvet_request_seconds_sum", (produce,)] == pytest.approx(0.0203)
    assert found["korvet_request_seconds_bucket", (("api", "Fetch"), ("le", "10.0"))] == 0
    lag = (("group", "workers"), ("partition", "0"), ("topic", "orders"))
    assert found["korvet_group_lag_records", lag] == 7
    assert found["korvet_produced_records_total", ()] == 0, "a counter is there before it counts"


def test_labels_may_have_any_characters() -> None:
    metrics = Metrics()
    odd = 'quo"te\\back\nline'
    metrics.group_lag.ask = lambda: {(odd, "orders", "0"): 7, ("no UTF-8 \udcff", "t", "0"): 8}
    found = rows(metrics_text([("0", metrics.snapshot())]))
    labels = (("group", odd), ("partition", "0"), ("topic", "orders"), ("worker", "0"))
    assert found["korvet_group_lag_records", labels] == 7
    labels = (("group", "no UTF-8 ?"), ("partition", "0"), ("topic", "t"), ("worker", "0"))
    assert found["korvet_group_lag_records", labels] == 8


def test_a_value_on_a_bucket_bound_belongs_to_that_bucket() -> None:
    histogram = Histogram("h", "H.", "api", (1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 2.1):
        histogram.of("a").observe(value)
    assert histogram.of("a").counts == [1, 2, 1]


def test_every_metric_is_named_for_us_and_has_a_sentence() -> None:
    families = Metrics().snapshot()
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.name.startswith("korvet_") and family.sentence.endswith(".")


def test_a_counter_keeps_its_rows_apart() -> None:
    counter = Counter("c", "C.", "reason")
    counter.add(1, "idle")
    counter.add(2, "garbage")
    assert {s.labels: s.value for s in counter.family().samples} == {("idle",): 1, ("garbage",): 2}


@pytest.mark.parametrize(
    ("request_text", "status", "body"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"200 OK", b"ok\n"),
        (b"GET /healthz?x=1 HTTP/1.0\r\n\r\n", b"200 OK", b"ok\n"),
        (b"GET /livez HTTP/1.1\r\n\r\n", b"200 OK", b"ok\n"),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", b"200 OK", b""),
        (b"GET /readyz HTTP/1.1\r\n\r\n", b"503 Service Unavailable", b"Redis is away\n"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found", b"/healthz, /readyz and /metrics are here\n"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed", b"GET or HEAD\n"),
        (b"nonsense\r\n\r\n", b"400 Bad Request", b"this is HTTP: GET /metrics HTTP/1.1\n"),
        (b"x" * 9000, b"400 Bad Request", b"this is HTTP: GET /metrics HTTP/1.1\n"),
    ],
)
async def test_a_request_gets_its_page_or_a_refusal(
    tmp_path: Path, request_text: bytes, status: bytes, body: bytes
) -> None:
    path = tmp_path / "ops"
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, OpsPage(Metrics(), always("Redis is away")), path)
        answer = await ask(path, request_text)
        tasks.cancel_scope.cancel()
    head, _, text = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert text == body


async def test_workers_are_scraped_together_with_a_label_for_each(tmp_path: Path) -> None:
    paths = [tmp_path / "0", tmp_path / "1"]
    async with anyio.create_task_group() as tasks:
        for number, path in enumerate(paths):
            metrics = Metrics()
            metrics.answered("Fetch", "NONE", number + 1)
            ops = OpsPage(metrics, always(None), notes=lambda: ["no append-only file"])
            await tasks.start(serve, ops, path)
        await tasks.start(serve, WorkerPoolPage(paths), tmp_path / "all")
        ready = b"ready\nno append-only file\n"
        assert await get(tmp_path / "all", "/readyz") == (200, ready)
        status, text = await get(tmp_path / "all", "/metrics")
        tasks.cancel_scope.cancel()
    assert status == 200
    found = rows(text)
    for number in ("0", "1"):
        labels = (("api", "Fetch"), ("worker", number))
        assert found["korvet_request_seconds_sum", labels] == int(number) + 1


async def test_only_prometheus_counts_as_a_scrape(tmp_path: Path) -> None:
    metrics = Metrics()
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, OpsPage(metrics, always(None)), tmp_path / "0")
        pool = WorkerPoolPage([tmp_path / "0"])
        assert await pool.snapshots()
        assert not metrics.is_scraped, "the console's requests do not count"
        assert (await pool.answer("/metrics"))[0] == 200
        assert metrics.is_scraped
        tasks.cancel_scope.cancel()
    assert await OpsPage(other := Metrics(), always(None)).snapshots() and not other.is_scraped


async def test_one_worker_that_is_not_ready_makes_all_not_ready(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, OpsPage(Metrics(), always(None)), tmp_path / "0")
        await tasks.start(serve, WorkerPoolPage([tmp_path / "0", tmp_path / "1"]), tmp_path / "all")
        status, body = await get(tmp_path / "all", "/readyz")
        metrics_status, _ = await get(tmp_path / "all", "/metrics")
        tasks.cancel_scope.cancel()
    assert (status, body) == (503, b"worker 1: it does not answer\n")
    assert metrics_status == 200, "the others are still scraped"


async def test_an_address_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"--ops 127\.0\.0\.1:{port} cannot be served"):
            await serve(OpsPage(Metrics(), always(None)), Address("127.0.0.1", port))


async def test_a_page_that_fails_ends_no_more_than_its_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()

    def fail() -> dict[tuple[str, ...], float]:
        raise ValueError("unexpected")

    metrics.group_lag.ask = fail
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, OpsPage(metrics, always(None)), tmp_path / "ops")
        assert await ask(tmp_path / "ops", b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        assert await get(tmp_path / "ops", "/healthz") == (200, b"ok\n")
        tasks.cancel_scope.cancel()
    assert "ops page failed" in caplog.text


async def test_a_process_without_descriptors_serves_its_pages_once_it_has_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = http.accept
    tries: list[None] = []

    async def accept_later(*arguments: Any) -> Any:
        tries.append(None)
        if len(tries) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return await real(*arguments)

    monkeypatch.setattr(http, "accept", accept_later)
    monkeypatch.setattr(http, "RETRY_S", 0)
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, OpsPage(Metrics(), always(None)), tmp_path / "ops")
        assert await get(tmp_path / "ops", "/healthz") == (200, b"ok\n")
        tasks.cancel_scope.cancel()
    assert len(tries) == 3 and "ops listener failed, retrying" in caplog.text


def test_localhost_is_served_at_one_port_of_each_of_its_addresses() -> None:
    sockets = listeners.bind_ops(Address("localhost", 0))
    try:
        assert len({each.getsockname()[1] for each in sockets}) == 1
        with socket.create_connection(("127.0.0.1", sockets[0].getsockname()[1])):
            pass
    finally:
        for each in sockets:
            each.close()


def test_an_address_that_this_machine_lacks_is_one_sentence() -> None:
    with pytest.raises(StartError, match=r"--ops 192\.0\.2\.1:9080 cannot be served"):
        listeners.bind_ops(Address("192.0.2.1", 9080), or_free=True)


@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("evil.example", "/metrics", 421),
        ("", "/metrics", 421),
        ("evil.example", "/readyz", 200),
        ("10.0.0.7:9090", "/metrics", 200),
        ("[::1]:9090", "/metrics", 200),
        ("LOCALHOST", "/metrics", 200),
        ("broker.example:9090", "/metrics", 200),
        ("grafana.example", "/metrics", 200),
        ("ops.lan", "/metrics", 200),
        ("localhost", "/scrape", 404),
        ("localhost", "/snapshot", 404),
    ],
)
async def test_a_port_is_served_under_its_own_names_without_the_pages_of_workers(
    tmp_path: Path, host: str, path: str, status: int
) -> None:
    config = load(
        {"advertise": "broker.example:9092"},
        sets=["console.allowed.hosts=grafana.example,Ops.LAN:9080"],
        environ={},
    )
    async with anyio.create_task_group() as tasks:
        page = OpsPage(Metrics(), always(None))
        await tasks.start(serve, page, tmp_path / "ops", None, None, HostNames(config))
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        answer = await ask(tmp_path / "ops", request)
        assert answer.split(b" ")[1] == b"%d" % status
        tasks.cancel_scope.cancel()
