"""Build the records of dead letters: Kafka's headers, and a copy of the record if there is one."""

from collections.abc import Sequence
from time import time
from typing import NamedTuple

from korvet.scripts.producer_state import WRAP
from korvet.topics.table import Topic
from korvet.wire.records import Record

BATCH_BYTES = 1 << 19
"""Bytes of keys, values and headers after which a batch ends."""
OVERHEAD = 600
"""Bytes of a dead letter without the record: its headers, with names of the longest length."""
REJECTED = b"A consumer rejected the record."
DELIVERED_TOO_OFTEN = b"The record was delivered as often as the group allows."
_REASONS = {1: REJECTED, 2: DELIVERED_TOO_OFTEN}


class DeadLetter(NamedTuple):
    """A dead letter."""

    number: int
    offset: int
    deliveries: int
    reason: int


def batches(
    group: str,
    topic: Topic,
    partition: int,
    letters: Sequence[DeadLetter],
    records: dict[int, Record],
    queue: Topic,
) -> list[list[tuple[int, Record]]]:
    """Return the dead letters with their numbers, in batches that the queue takes."""
    max_bytes = min(BATCH_BYTES, queue.policy.max_message_bytes)
    now_ms = int(time() * 1000)
    batches: list[list[tuple[int, Record]]] = []
    size = 0
    for letter in letters:
        record = _dead_letter(group, topic, partition, letter, records.get(letter.offset), now_ms)
        bytes_of = _size(record)
        if bytes_of > queue.policy.max_message_bytes:
            record = _dead_letter(group, topic, partition, letter, None, now_ms)
            bytes_of = _size(record)
        if not batches or size + bytes_of > max_bytes or letter.number % WRAP == 0:
            batches.append([])
            size = 0
        # Offsets count from 0 within the batch.
        batches[-1].append((letter.number, (len(batches[-1]), *record[1:])))
        size += bytes_of
    return batches


def _size(record: Record) -> int:
    _, _, key, value, headers = record
    return (
        OVERHEAD
        + len(key or b"")
        + len(value or b"")
        + sum(len(name) * 3 + len(data or b"") + 10 for name, data in headers)
    )


def _dead_letter(
    group: str, topic: Topic, partition: int, letter: DeadLetter, record: Record | None, now_ms: int
) -> Record:
    """Return the record of a dead letter: Kafka's headers, after those of the record."""
    headers: list[tuple[str, bytes | None]] = [
        ("__dlq.errors.topic", topic.name.encode()),
        ("__dlq.errors.partition", b"%d" % partition),
        ("__dlq.errors.offset", b"%d" % letter.offset),
        ("__dlq.errors.group", group.encode()),
        ("__dlq.errors.delivery.count", b"%d" % letter.deliveries),
        ("__dlq.errors.message", _REASONS[letter.reason]),
    ]
    if record is None:
        return (0, now_ms, None, None, headers)
    return (0, now_ms, record[2], record[3], [*record[4], *headers])
