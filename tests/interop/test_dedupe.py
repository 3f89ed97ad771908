"""Check korvet-dedupe-id with a real producer: what it sends again is stored once."""

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import producer, read

pytestmark = pytest.mark.korvet_only

HOUR = {"dedupe_window_ms": "3600000", "offset_mode": "dense", "storage_format": "record"}


def send(sink: Producer, topic: str, ids: Sequence[str]) -> list[int | None]:
    """Produce a record per id; return their offsets as the producer reports them."""
    found: list[int | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        found.append(message.offset())

    for id in ids:
        headers = [("korvet-dedupe-id", id.encode())]
        sink.produce(topic, id.encode(), partition=0, headers=headers, on_delivery=delivered)
    assert sink.flush(30) == 0
    return found


@pytest.mark.parametrize("idempotence", [False, True])
def test_what_a_restarted_producer_sends_again_is_stored_once(
    default_broker: Broker, idempotence: bool
) -> None:
    topic = create_topic(default_broker.address, **HOUR)
    ids = [f"order-{n}" for n in range(2500)]
    for _ in range(2):
        sink = producer(default_broker.address, enable_idempotence=idempotence, linger_ms=50)
        assert send(sink, topic, ids[:1]) == [0]
        assert send(sink, topic, ids) == [*range(2500)]
        send(sink, topic, ["new", "new"])
    found = read(default_broker.address, topic, 2501)
    assert [message.value().decode() for message in found] == [*ids, "new"]


def test_a_batch_without_consecutive_offsets_has_none_for_the_producer(
    default_broker: Broker,
) -> None:
    topic = create_topic(default_broker.address, **HOUR)
    sink = producer(default_broker.address, enable_idempotence=True, linger_ms=200)
    assert send(sink, topic, ["a"]) == [0]
    # librdkafka counts on from the batch's base offset, which is -1.
    assert send(sink, topic, ["b", "a", "c"]) == [None, 0, 1]
    assert send(sink, topic, ["d"]) == [3]


def test_a_transactional_producer_sees_why_its_batch_is_refused(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address, **HOUR)
    sink = producer(default_broker.address, transactional_id=f"{topic}-x")
    sink.init_transactions(30)
    sink.begin_transaction()
    errors: list[KafkaError] = []
    sink.produce(
        topic,
        b"v",
        headers=[("korvet-dedupe-id", b"a")],
        on_delivery=lambda error, _: errors.append(error),
    )
    sink.flush(30)
    assert errors[0].code() == KafkaError.INVALID_RECORD
    with pytest.raises(KafkaException):
        sink.commit_transaction(30)
    sink.abort_transaction(30)
    sink.begin_transaction()
    sink.produce(topic, b"without")
    sink.commit_transaction(30)
    assert [message.value() for message in read(default_broker.address, topic, 1)] == [b"without"]
