"""Idempotent batches through several brokers at once."""

import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from korvet.wire.batch_builder import build
from korvet.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from korvet.wire.schema import decode, encode
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import read
from tests.interop.test_groups_faults import pair

__all__ = ["pair"]

pytestmark = pytest.mark.korvet_only


@pytest.mark.parametrize("format", ["record", "batch"])
def test_a_batch_sent_through_two_brokers_at_once_is_stored_once(
    pair: tuple[Broker, Broker], format: str
) -> None:
    topic = create_topic(pair[0].address, storage_format=format)
    batches = [built(number) for number in range(20)]
    with ThreadPoolExecutor(2) as pool:
        answers = [
            list(pool.map(lambda broker, batch=batch: produce(broker, topic, batch), pair))
            for batch in batches
        ]
    assert [error for answer in answers for error, _ in answer] == [0] * 40
    assert all(one == other for (_, one), (_, other) in answers)
    values = [message.value() for message in read(pair[0].address, topic, 40)]
    assert values == [b"%d" % n for n in range(40)]


def built(number: int) -> bytes:
    """Return the batch of that number of an idempotent producer: two records."""
    found = [(n, 1, None, b"%d" % (2 * number + n), []) for n in range(2)]
    return bytes(build(found, producer=(4711, 0, 2 * number)))


def produce(broker: Broker, topic: str, batch: bytes) -> tuple[int, int]:
    """Send one batch and return error code and base offset of the response."""
    body = encode(
        ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
                )
            ],
        ),
        8,
    )
    frame = struct.pack(">hhih", 0, 8, 1, -1) + body
    host, port = broker.address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as line, line.makefile("rb") as answer:
        line.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", answer.read(4))
        found = decode(ProduceResponse, answer.read(size), 8, 4)
    row = found.responses[0].partition_responses[0]
    assert row.error_message is None, row.error_message
    return row.error_code, row.base_offset
