"""Current clients, for topics that clients of Kafka 0.7 use too."""

from collections.abc import Iterable

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.interop.records import Record

QUICK = {"socket.timeout.ms": 10_000, "fetch.wait.max.ms": 50}


def consumed(bootstrap: str, topic: str, count: int, offset: int = 0) -> list[Message]:
    """Consume `count` messages of partition 0, starting at an offset."""
    source = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, **QUICK}
    )
    source.assign([TopicPartition(topic, 0, offset)])
    found: list[Message] = []
    while len(found) < count:
        message = source.poll(10)
        assert message is not None, f"{len(found)} of {count} messages consumed"
        assert message.error() is None, message.error()
        found.append(message)
    source.close()
    return found


def send(bootstrap: str, topic: str, records: Iterable[Record], **options: object) -> list[int]:
    """Produce the records to partition 0 as one batch, in order. Returns their offsets."""
    offsets: list[int] = []

    def reported(error: object, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset() or 0)

    sink = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **options})
    for record in records:
        sink.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            partition=0,
            on_delivery=reported,
        )
    assert sink.flush(60) == 0
    return offsets
