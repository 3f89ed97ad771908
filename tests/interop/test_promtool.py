"""Prometheus's own checker finds nothing to say about the pages."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.test_metrics import free_port, page
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.support.raw_client import Peer, batch, to_fetch, to_produce

pytestmark = pytest.mark.interop


@pytest.fixture(params=[(), ("--workers", "2")], ids=["one process", "two workers"])
def used(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[int]:
    """The ops port of a broker that has served a produce and a fetch."""
    port = free_port()
    mine = Broker(tmp_path, {}, ("--ops", f"127.0.0.1:{port}", *request.param))
    mine.start()
    topic = create_topic(mine.address, storage_format="batch", offset_mode="dense")
    with Peer(mine.address) as peer:
        peer.ask("Produce", 9, to_produce(topic, batch([b"v"])))
        peer.ask("Fetch", 12, to_fetch(topic))
    yield port
    mine.close()


def promtool(*words: str, stdin: str = "") -> str:
    """What promtool prints; it has succeeded."""
    program = shutil.which("promtool")
    assert program, "promtool is not installed: these tests are part of the suite, install it"
    done = subprocess.run(
        [program, *words], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_metrics_are_named_as_prometheus_advises(used: int) -> None:
    status, text = page(used, "/metrics")
    assert status == 200 and "korvet_topic_produced_records_total" in text
    assert promtool("check", "metrics", stdin=text) == ""


def test_the_page_of_kafka_exporters_names_is_served_and_parsed(used: int) -> None:
    status, text = page(used, "/metrics/kafka")
    assert status == 200 and "kafka_topic_partition_current_offset{" in text
    assert promtool("check", "metrics", stdin=text) == ""
