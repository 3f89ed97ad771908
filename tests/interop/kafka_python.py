"""Helpers for kafka-python that several test files use."""

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

with warnings.catch_warnings():
    # kafka-python reads its schemas by functions that Python 3.11 deprecates.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka import errors as errors
    from kafka.consumer.subscription_state import (
        ConsumerRebalanceListener as ConsumerRebalanceListener,
    )

from tests.interop.records import EVERY_SHAPE, Record

PATIENCE = 20.0
CARRIED = tuple(
    record
    for record in EVERY_SHAPE
    if all(value is not None for _, value in record.headers)
    and (record.key is not None or record.value is not None)
)
"""This client sends neither a null header nor a record without key and value."""

__all__ = ["CARRIED", "KafkaAdminClient", "KafkaConsumer", "TopicPartition", "errors"]


@contextmanager
def consumer(bootstrap: str, **settings: Any) -> Iterator[KafkaConsumer]:
    """Yield a consumer, without a group unless one is given."""
    defaults = {
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 100,
        "retry_backoff_ms": 10,
    }
    source = KafkaConsumer(bootstrap_servers=bootstrap, **{**defaults, **settings})
    try:
        yield source
    finally:
        source.close()


def send(bootstrap: str, topic: str, records: Sequence[Record], **settings: Any) -> list[int]:
    """Send the records and return their offsets."""
    sink = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=2, retry_backoff_ms=10, **settings)
    try:
        sent = [
            sink.send(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=0,
                timestamp_ms=record.timestamp,
            )
            for record in records
        ]
        return [future.get(PATIENCE).offset for future in sent]
    finally:
        sink.close(PATIENCE)


def read(bootstrap: str, topic: str, count: int, **settings: Any) -> list[tuple[int, Record]]:
    """Return offset and record of the first `count` records of partition 0."""
    with consumer(bootstrap, **settings) as source:
        source.assign([TopicPartition(topic, 0)])
        return [(found.offset, as_record(found)) for found in take(source, count)]


def take(source: KafkaConsumer, count: int) -> list[Any]:
    """Return the next `count` records."""
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < deadline:
        for records in source.poll(timeout_ms=200, max_records=count - len(found)).values():
            found += records
    assert len(found) == count, f"{len(found)} records of {count} came in {PATIENCE} s"
    return found


def as_record(found: Any) -> Record:
    """Convert the client's record; its timestamp is -1 if there is none."""
    headers = tuple((name, value) for name, value in found.headers or ())
    timestamp = found.timestamp if found.timestamp is not None else -1
    return Record(found.key, found.value, headers, timestamp)


def named(codec: str) -> str | None:
    """Return this client's name of a codec."""
    return None if codec == "none" else codec
