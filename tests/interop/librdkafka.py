"""Helpers for confluent-kafka that several test files use."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from tests.interop.records import Record

PATIENCE = 60.0


def producer(bootstrap: str, **settings: Any) -> Producer:
    """Return a producer with default settings, plus these (underscores for dots)."""
    defaults = {"bootstrap.servers": bootstrap, "linger.ms": 2, "log_level": 0}
    return Producer({**defaults, **_named(settings)})


def consumer(bootstrap: str, group: str = "unused", **settings: Any) -> Consumer:
    """Return a consumer without automatic commits that starts at the beginning."""
    defaults = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "log_level": 0,
    }
    return Consumer({**defaults, **_named(settings)})


def send(to: Producer, topic: str, records: Iterable[Record], partition: int = 0) -> list[int]:
    """Send the records and return their offsets, in the order of sending."""
    offsets: dict[int, int] = {}
    count = 0
    for index, record in enumerate(records):
        to.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp,
            partition=partition,
            on_delivery=_note(offsets, index),
        )
        count += 1
    left = to.flush(PATIENCE)
    assert left == 0, f"{left} records were not acknowledged"
    assert len(offsets) == count
    return [offsets[index] for index in range(count)]


def read(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    start: int = OFFSET_BEGINNING,
    **settings: Any,
) -> list[Message]:
    """Return the first `count` records of a partition from `start` on."""
    source = consumer(bootstrap, **settings)
    try:
        assign(source, [TopicPartition(topic, partition, start)])
        return take(source, count)
    finally:
        source.close()


def assign(source: Consumer, places: list[TopicPartition]) -> None:
    """Assign the partitions of a topic after a Metadata request for their leaders.

    If it does not have the leaders, librdkafka requests a first or last offset 500 ms later.
    """
    source.list_topics(places[0].topic, timeout=PATIENCE)
    source.assign(places)


def take(source: Consumer, count: int, patience: float = PATIENCE) -> list[Message]:
    """Return the next `count` records; an error of the broker fails the test."""
    found: list[Message] = []
    deadline = time.monotonic() + patience
    while len(found) < count and time.monotonic() < deadline:
        for message in source.consume(count - len(found), timeout=0.2):
            error = message.error()
            assert error is None, error
            found.append(message)
    assert len(found) == count, f"{len(found)} records of {count} came in {patience} s"
    return found


def as_record(message: Message) -> Record:
    """Convert the message to the record that was sent."""
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(message.key(), message.value(), headers, message.timestamp()[1])


def eventually(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Wait until `condition` returns a true value and return it; a failure shows the last one."""
    deadline = time.monotonic() + patience
    answer = condition()
    while not answer and time.monotonic() < deadline:
        time.sleep(0.02)
        answer = condition()
    assert answer, f"condition not met within {patience} s; last value {answer!r}"
    return answer


def _note(offsets: dict[int, int], index: int) -> Callable[[Any, Message], None]:
    def delivered(error: Any, message: Message) -> None:
        assert error is None, error
        offsets[index] = message.offset()

    return delivered


def _named(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
