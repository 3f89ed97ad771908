"""A producer that keeps writing while brokers and servers stop and start."""

import threading
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Message, Producer, TopicPartition

from tests.interop.librdkafka import assign, consumer, eventually, producer, take

LONG = 120.0
"""Seconds. A Sentinel that could not run for 2 s does nothing for another 30 s (TILT mode)."""


class Numbers:
    """A thread that writes numbers to a topic's partitions in turn until stopped.

    `acknowledged` has the offset of each acknowledged number. It is None after
    DUPLICATE_SEQUENCE_NUMBER: librdkafka then has no offset.
    """

    def __init__(self, address: str, topic: str, partitions: int = 1) -> None:
        self.acknowledged: dict[int, int | None] = {}
        self._sent = self._below = 0
        self._sink: Producer = producer(
            address,
            enable_idempotence=True,
            retry_backoff_ms=50,
            reconnect_backoff_max_ms=200,
        )
        self._topic = topic
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def reach(self, count: int) -> None:
        """Wait until `count` more numbers, and all sent before them, are acknowledged."""
        goal = self._sent + count
        eventually(lambda: self._whole() >= goal, LONG)

    def lag(self, count: int) -> None:
        """Wait until `count` numbers are sent and not acknowledged yet."""
        eventually(lambda: self._sent - len(self.acknowledged) >= count, LONG)

    def finish(self) -> None:
        """Stop, and wait until everything sent is acknowledged."""
        self._stop.set()
        self._thread.join(LONG)
        assert self._sink.flush(LONG) == 0
        assert len(self.acknowledged) == self._sent

    def check(self, address: str) -> None:
        """Check that each number is stored once, at its acknowledged offset, in the order sent."""
        places = [TopicPartition(self._topic, n, OFFSET_BEGINNING) for n in range(self._partitions)]
        found: list[list[tuple[int, int]]] = [[] for _ in places]
        source = consumer(address)
        assign(source, places)
        for message in take(source, self._sent, LONG):
            found[message.partition()].append((int(message.value()), message.offset()))
        for partition, rows in enumerate(found):
            sent = range(partition, self._sent, self._partitions)
            assert [number for number, _ in rows] == list(sent)
            unlike = [row for row in rows if self.acknowledged[row[0]] not in (row[1], None)]
            assert not unlike, unlike[:9]
            _, end = source.get_watermark_offsets(places[partition], timeout=LONG)
            assert rows[-1][1] + 1 == end, "the partition has more records"
        source.close()

    def _whole(self) -> int:
        """Return the first number that is not acknowledged."""
        while self._below in self.acknowledged:
            self._below += 1
        return self._below

    def _run(self) -> None:
        while not self._stop.wait(0.001):
            number = self._sent
            self._sink.produce(
                self._topic,
                b"%d" % number,
                partition=number % self._partitions,
                on_delivery=self._noted(number),
            )
            self._sink.poll(0)
            self._sent += 1

    def _noted(self, number: int) -> Callable[[object, Message], None]:
        def delivered(error: object, message: Message) -> None:
            assert error is None, error
            self.acknowledged[number] = message.offset()

        return delivered
