"""Write, read back and compare a log of many times Redis's memory budget."""

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from korvet.embedded_redis.socket import ask, socket_path
from tests.interop import kafka_python, librdkafka

VALUE_BYTES = 4000
PARTITIONS = 2
TOPICS: Mapping[str, dict[str, str]] = {
    "records": {"storage.format": "record", "offset.mode": "time"},
    "batches": {"storage.format": "batch", "offset.mode": "dense"},
}
PATIENCE_S = 240.0
Place = tuple[str, int]


@dataclass
class Content:
    """A partition's content: count, SHA-256 of all values in order, and sum of their CRCs."""

    count: int = 0
    crcs: int = 0
    _digest: Any = field(default_factory=hashlib.sha256, compare=False)

    def add(self, value: bytes) -> None:
        self.count += 1
        self.crcs += crc32(value)
        self._digest.update(value)

    @property
    def ordered(self) -> tuple[int, str]:
        return self.count, self._digest.hexdigest()

    @property
    def unordered(self) -> tuple[int, int]:
        return self.count, self.crcs


def values(place: Place, size: int) -> Iterator[bytes]:
    """Yield values of `size` bytes in total, equal at each call; they do not compress."""
    source = random.Random(f"{place[0]}-{place[1]}")
    for _ in range(size // VALUE_BYTES):
        yield source.randbytes(VALUE_BYTES)


def create(address: str) -> None:
    topics = [NewTopic(name, PARTITIONS, 1, config=given) for name, given in TOPICS.items()]
    admin = AdminClient({"bootstrap.servers": address})
    for done in admin.create_topics(topics).values():
        done.result(60)


def write(address: str, size: int, in_the_middle: Callable[[], None]) -> dict[Place, Content]:
    """Produce `size` bytes to the topics with an idempotent producer; all are acknowledged."""
    errors: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors.append(error)

    to = librdkafka.producer(
        address,
        acks="all",
        enable_idempotence=True,
        linger_ms=20,
        batch_size=100_000,
        queue_buffering_max_kbytes=20_000,
    )
    places = [(name, number) for name in TOPICS for number in range(PARTITIONS)]
    written = {place: Content() for place in places}
    rows = {place: values(place, size // len(places)) for place in places}
    half = size // VALUE_BYTES // len(places) // 2
    for step in range(2 * half):
        if step == half:
            in_the_middle()
        for place in places:
            value = next(rows[place])
            while True:
                try:
                    to.produce(place[0], value, partition=place[1], on_delivery=delivered)
                    break
                except BufferError:
                    to.poll(0.05)
            written[place].add(value)
        to.poll(0)
    assert to.flush(PATIENCE_S) == 0
    assert errors == []
    return written


def _collect(rows: Iterable[tuple[Place, bytes]], count: int) -> dict[Place, Content]:
    found = {(name, number): Content() for name in TOPICS for number in range(PARTITIONS)}
    for place, value in rows:
        found[place].add(value)
        count -= 1
        if not count:
            break
    return found


def read_librdkafka(address: str, count: int) -> dict[Place, Content]:
    source = librdkafka.consumer(address, check_crcs=True)
    source.assign(
        [TopicPartition(name, n, OFFSET_BEGINNING) for name in TOPICS for n in range(PARTITIONS)]
    )

    def rows() -> Iterator[tuple[Place, bytes]]:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for message in source.consume(1000, 1.0):
                assert message.error() is None, message.error()
                topic, partition, value = message.topic(), message.partition(), message.value()
                assert topic is not None and partition is not None and value is not None
                yield (topic, partition), value

    try:
        return _collect(rows(), count)
    finally:
        source.close()


def read_kafka_python(address: str, count: int) -> dict[Place, Content]:
    with kafka_python.consumer(address, group_id=None, max_poll_records=2000) as source:
        places = [kafka_python.TopicPartition(t, n) for t in TOPICS for n in range(PARTITIONS)]
        source.assign(places)
        source.seek_to_beginning(*places)

        def rows() -> Iterator[tuple[Place, bytes]]:
            end = time.monotonic() + PATIENCE_S
            while time.monotonic() < end:
                for place, found in source.poll(1000).items():
                    for record in found:
                        yield (place.topic, place.partition), record.value

        return _collect(rows(), count)


class MemoryWatch:
    """The used memory of an embedded Redis, sampled until the end."""

    def __init__(self, data: Path) -> None:
        self._socket = socket_path(data)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak = self.rss = self.samples = 0

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            rows = (line.partition(b":") for line in ask(self._socket, b"INFO memory").split())
            found = {name: value for name, _, value in rows}
            # The server's peak since its start includes the time between two samples.
            self.peak = max(self.peak, int(found.get(b"used_memory_peak", 0)))
            self.rss = max(self.rss, int(found.get(b"used_memory_rss", 0)))
            self.samples += bool(found)
