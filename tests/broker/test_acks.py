"""Check Produce with acks=0: no response, and a batch that is not stored closes the connection."""

import os
import signal
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from korvet.wire.messages.produce import ProduceRequest
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.support.raw_client import API_VERSIONS, Peer, batch, request, to_fetch, to_produce, until
from tests.support.redis_servers import TestServer
from tests.support.shared_broker import started

GOOD = batch([b"v"])


def by_id(wanted: ProduceRequest) -> ProduceRequest:
    """Return the request with the id of a topic that does not exist."""
    (data,) = wanted.topic_data
    return replace(wanted, topic_data=[replace(data, name="", topic_id=uuid4())])


REFUSED = {
    "a partition that is not there": lambda topic: to_produce(topic, GOOD, acks=0, partition=7),
    "one partition of two": lambda topic: to_produce(topic, [GOOD, GOOD], acks=0),
    "a wrong checksum": lambda topic: to_produce(topic, GOOD[:-1] + b"X", acks=0),
    "too large a batch": lambda topic: to_produce(topic, batch([bytes(2 << 20)]), acks=0),
    "a topic that was made again": lambda topic: by_id(to_produce(topic, GOOD, acks=0)),
}


def stored(broker: Broker, topic: str) -> int:
    """Return the bytes of records that the topic has."""
    with Peer(broker.address) as peer:
        answer = peer.ask("Fetch", 11, to_fetch(topic))
    return len(answer.responses[0].partitions[0].records)


@pytest.mark.parametrize("what", REFUSED)
def test_a_batch_that_is_refused_without_acks_ends_its_connection(
    broker: Broker, what: str
) -> None:
    topic = create_topic(broker.address)
    wanted = REFUSED[what](topic)
    since = len(broker.log)
    with Peer(broker.address) as peer:
        peer.send(request("Produce", 9 if wanted.topic_data[0].name else 13, wanted))
        assert peer.ended()
        said = broker.log[since:].splitlines()
        (line,) = [row for row in said if f"client={peer.name} " in row]
    assert "acks=0 is not stored" in line and "api=Produce" in line


def test_a_batch_that_is_stored_without_acks_gets_no_response(broker: Broker) -> None:
    topic = create_topic(broker.address)
    with Peer(broker.address) as peer:
        peer.send(request("Produce", 9, to_produce(topic, GOOD, acks=0)), API_VERSIONS)
        assert peer.answer()[:4] == API_VERSIONS[4:8]
    assert until(lambda: stored(broker, topic) > 0)


def test_a_redis_that_is_away_ends_the_connections_of_producers_without_acks(
    tmp_path: Path, own_server: TestServer
) -> None:
    mine = started(tmp_path, own_server.url)
    topic = create_topic(mine.address)
    with Peer(mine.address) as peer:
        os.kill(own_server.pid, signal.SIGKILL)
        peer.send(request("Produce", 9, to_produce(topic, GOOD, acks=0)))
        assert peer.ended()
    mine.close()
