"""Check /metrics after real traffic, and /readyz with a real Redis."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from korvet.scripts import bundle
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.support.ports import free_port
from tests.support.raw_client import Peer, batch, to_fetch, to_produce, until
from tests.support.redis_servers import TestServer


@pytest.fixture
def watched(tmp_path: Path, own_server: TestServer) -> Iterator[tuple[Broker, int]]:
    """A broker with an ops port."""
    port = free_port()
    options = ("--redis", own_server.url, "--ops", f"127.0.0.1:{port}")
    mine = Broker(tmp_path, {"redis.timeout.ms": "1000"}, options)
    mine.start()
    yield mine, port
    mine.close()
    assert "Traceback" not in mine.log


def page(port: int, path: str) -> tuple[int, str]:
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        asking.request("GET", path)
        answer = asking.getresponse()
        return answer.status, answer.read().decode()
    finally:
        asking.close()


def rows(port: int) -> dict[str, float]:
    """Return every row by its name and its labels' values."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page(port, "/metrics")[1])
        for sample in family.samples
    }


@pytest.mark.parametrize("form", ["record", "batch"])
def test_what_is_produced_fetched_and_refused_is_counted(
    watched: tuple[Broker, int], own_server: TestServer, form: str
) -> None:
    mine, port = watched
    topic = create_topic(mine.address, storage_format=form, offset_mode="dense")
    data = batch([b"value-%d" % number for number in range(7)])
    with Peer(mine.address) as peer:
        for _ in range(3):
            peer.ask("Produce", 9, to_produce(topic, data))
        found = peer.ask("Fetch", 12, to_fetch(topic))
        peer.ask("Produce", 9, to_produce("no.such topic", data))
        counted = rows(port)
        assert counted["korvet_connections"] >= 1
    sent = len(bytes(found.responses[0].partitions[0].records))
    assert counted["korvet_produced_records_total"] == 21
    assert counted[f"korvet_topic_produced_records_total {topic}"] == 21
    assert counted[f"korvet_topic_produced_bytes_total {topic}"] == 3 * len(data)
    assert counted[f"korvet_topic_fetched_records_total {topic}"] == 21
    assert counted[f"korvet_topic_fetched_bytes_total {topic}"] == sent
    assert counted["korvet_topics_not_shown"] == 0
    assert counted["korvet_fetch_work_seconds_count"] == 1
    assert counted["korvet_fetch_record_age_seconds_count"] == 1
    assert counted["korvet_fetch_record_age_seconds_bucket 86400.0"] == 0, "from the year 2023"
    assert counted["process_resident_memory_bytes"] > 1e6
    assert counted["korvet_produced_bytes_total"] == 3 * len(data)
    assert counted["korvet_fetched_records_total"] == 21
    assert counted["korvet_fetched_bytes_total"] == sent > 0
    assert counted["korvet_duplicate_batches_total"] == 0
    assert counted["korvet_requests_total Fetch NONE"] == 1
    assert counted["korvet_requests_total Produce NONE"] == 3
    assert counted["korvet_requests_total Produce UNKNOWN_TOPIC_OR_PARTITION"] == 1
    assert counted["korvet_request_seconds_count Produce"] == 4
    assert counted["korvet_redis_up"] == 1
    assert counted["korvet_redis_round_trips_total"] > 0 < counted["korvet_redis_calls_total"]
    assert counted["korvet_received_bytes_total"] > 3 * len(data)
    assert counted["korvet_sent_bytes_total"] > sent
    with Peer(mine.address) as rude:
        rude.socket.sendall(b"\xff" * 8)
        assert rude.ended()
    assert rows(port)["korvet_connections_refused_total protocol"] == 1


def test_a_batch_sent_twice_is_counted_once_and_as_a_duplicate(
    watched: tuple[Broker, int],
) -> None:
    mine, port = watched
    topic = create_topic(mine.address, storage_format="batch", offset_mode="dense")
    with Peer(mine.address) as peer:
        wanted = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        made = peer.ask("InitProducerId", 4, wanted)
        data = batch([b"a", b"b"], producer=(made.producer_id, made.producer_epoch, 0))
        offsets = [
            peer.ask("Produce", 9, to_produce(topic, data))
            .responses[0]
            .partition_responses[0]
            .base_offset
            for _ in range(3)
        ]
    assert offsets == [0, 0, 0]
    counted = rows(port)
    assert counted["korvet_produced_records_total"] == 2
    assert counted["korvet_duplicate_batches_total"] == 2


def test_a_foreign_entry_without_an_offset_is_counted(
    watched: tuple[Broker, int], own_server: TestServer
) -> None:
    mine, port = watched
    topic = create_topic(mine.address, storage_format="record", offset_mode="time")
    with own_server.client() as client, Peer(mine.address) as peer:
        peer.ask("Produce", 9, to_produce(topic, batch([b"a"])))
        ((last, _),) = client.xrevrange(f"korvet:{topic}:0", count=1)
        milliseconds = int(last.partition(b"-")[0]) + 1
        client.xadd(f"korvet:{topic}:0", {"value": "v"}, id=f"{milliseconds}000000-0")
        peer.ask("Fetch", 12, to_fetch(topic))
        peer.ask("Fetch", 12, to_fetch(topic))
    assert rows(port)["korvet_unreadable_entries_total"] >= 1


def test_ready_means_that_redis_answers_and_has_the_scripts(
    watched: tuple[Broker, int], own_server: TestServer
) -> None:
    mine, port = watched
    status, text = page(port, "/readyz")
    assert status == 200 and "\npersistence of Redis at" in text
    with own_server.client() as client:
        client.config_set("appendonly", "yes")
        assert until(lambda: page(port, "/readyz") == (200, "ready\n"))
        create_topic(mine.address, durability="fsync")
        assert page(port, "/readyz") == (200, "ready\n")
        # The server has changed since the topic was created.
        client.config_set("appendonly", "no")
    assert until(lambda: "waits for fsync, which Redis cannot keep" in page(port, "/readyz")[1])
    hashes = [bundle.load(name).sha1 for name in bundle.names()]
    with own_server.client() as client:
        assert all(client.script_exists(*hashes))
        client.script_flush()
        assert page(port, "/readyz")[0] == 200
        assert all(client.script_exists(*hashes)), "what was missing has been loaded"
        client.shutdown(nosave=True)
    assert until(lambda: page(port, "/readyz")[0] == 503)
    assert page(port, "/healthz") == (200, "ok\n")
    assert rows(port)["korvet_redis_up"] == 0
