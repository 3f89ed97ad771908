"""Clients that produce and read while a fault happens, and what they have seen of it.

- `Idempotent` produces numbered records; `Transactions` writes several records per transaction and
  aborts some; `Reader` reads what is committed and applies no reset policy: it gets an error for
  what it misses. Most records have one of few keys.
- Each runs in a thread until it is stopped. Clients that end with a fatal error start again.
"""

import random
import re
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.interop.librdkafka import consumer, producer

PAUSE_S = 0.01
IN_TRANSACTION = 5
KEYS = 8
RARE = 25
"""The number of records of which one has a key that no other has."""
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20}
VALUE = re.compile(rb"i\d{6}")
END = re.compile(r"broker end offset is (\d+)")


class Client(ABC):
    """A client that runs in a thread."""

    def __init__(self, addresses: str, topic: str, seed: int, pause_s: float = PAUSE_S) -> None:
        self.addresses = addresses
        self.topic = topic
        self.random = random.Random(seed)
        self.pause_s = pause_s
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), f"{self} does not end"

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.work()
            # librdkafka calls back while it raises: the binding then raises SystemError.
            except (KafkaException, SystemError) as error:
                self.errors.append(str(error))
                time.sleep(0.1)

    @abstractmethod
    def work(self) -> None:
        """Work until the client is stopped; raise KafkaException to start again."""

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()


class Idempotent(Client):
    """An idempotent producer. `acknowledged` has (offset, value, time), in order."""

    def __init__(self, addresses: str, topic: str, seed: int, pause_s: float = PAUSE_S) -> None:
        super().__init__(addresses, topic, seed, pause_s)
        self.acknowledged: list[tuple[int | None, bytes, float]] = []
        self._next = 0

    @property
    def done(self) -> int:
        return len(self.acknowledged)

    def work(self) -> None:
        sink = producer(self.addresses, enable_idempotence=True, **_named(QUICK))
        while not self.stopped:
            value = b"i%06d" % self._next
            self._next += 1
            sink.produce(self.topic, value, key_of(value), partition=0, on_delivery=self._delivered)
            sink.poll(self.pause_s)
            fatal = self._fatal
            if fatal:
                self._fatal = ""
                raise KafkaException(KafkaError(KafkaError._FATAL, fatal))
        sink.flush(60)

    _fatal = ""

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            row = (message.offset(), message.value(), time.monotonic())
            self.acknowledged.append(row)  # type: ignore[arg-type]
        elif error.fatal():
            self._fatal = str(error)
        else:
            self.errors.append(str(error))


class Transactions(Client):
    """A transactional producer. `outcomes` has "committed", "aborted" or "unknown" by prefix."""

    def __init__(self, addresses: str, topic: str, seed: int, pause_s: float = PAUSE_S) -> None:
        super().__init__(addresses, topic, seed, pause_s)
        self.outcomes: dict[bytes, str] = {}
        self._stored: list[tuple[int | None, bytes]] = []
        self._unknown: bytes | None = None

    def forget_last(self) -> None:
        """Let no one judge the transaction in progress: Redis forgets it, perhaps in its commit."""
        self._unknown = next(reversed(self.outcomes), None)

    @property
    def done(self) -> int:
        return sum(outcome == "committed" for outcome in self.outcomes.values())

    @property
    def acknowledged(self) -> list[tuple[int | None, bytes]]:
        """The offsets and values of committed records."""
        return [row for row in self._stored if self.outcomes[row[1][:7]] == "committed"]

    def aborted(self, values: set[bytes]) -> set[bytes]:
        """Return those that were written by transactions that were aborted."""
        return {
            value
            for value in values
            if self.outcomes.get(value[:7]) == "aborted" and value[:7] != self._unknown
        }

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._stored.append((message.offset(), message.value()))  # type: ignore[arg-type]

    def work(self) -> None:
        settings = _named(QUICK) | {"transactional_id": self.topic}
        sink = producer(self.addresses, transaction_timeout_ms=8_000, **settings)
        sink.init_transactions(20)
        while not self.stopped:
            self._transact(sink)
            time.sleep(self.pause_s)

    def _transact(self, sink: Producer) -> None:
        name = b"t%06d" % len(self.outcomes)
        self.outcomes[name] = "unknown"
        sink.begin_transaction()
        for number in range(IN_TRANSACTION):
            value = b"%s-%d" % (name, number)
            sink.produce(self.topic, value, key_of(value), partition=0, on_delivery=self._delivered)
        if self.random.random() < 0.3:
            sink.flush(20)
            sink.abort_transaction(20)
            self.outcomes[name] = "aborted"
            return
        while True:
            try:
                sink.commit_transaction(20)
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if cause.retriable() and not self.stopped:
                    continue
                if cause.txn_requires_abort():
                    with suppress(KafkaException):
                        sink.abort_transaction(20)
                        self.outcomes[name] = "aborted"
                    return
                raise
            self.outcomes[name] = "committed"
            return


class Reader(Client):
    """A consumer with auto.offset.reset=error: `noticed` has its errors of that kind."""

    def __init__(self, addresses: str, topic: str, seed: int) -> None:
        super().__init__(addresses, topic, seed)
        self.found: list[tuple[int, bytes]] = []
        self.noticed: list[str] = []

    def work(self) -> None:
        source = consumer(
            self.addresses,
            auto_offset_reset="error",
            isolation_level="read_committed",
            **_named(QUICK),
        )
        try:
            source.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
            while not self.stopped:
                self._take(source)
        finally:
            source.close()

    def _take(self, source: Consumer) -> None:
        for message in source.consume(500, timeout=0.1):
            error = message.error()
            if error is None:
                self.found.append((message.offset(), message.value()))  # type: ignore[arg-type]
                continue
            self.errors.append(str(error))
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                self.noticed.append(str(error))
                self._seek(source, str(error))

    def _seek(self, source: Consumer, text: str) -> None:
        """Continue at the end of what is left, as an application does that accepts the loss."""
        found = END.search(text)
        offset = int(found[1]) if found else OFFSET_BEGINNING
        source.assign([TopicPartition(self.topic, 0, offset)])


class Program:
    """A consumer of another client that runs as a process, which ends if it notices a loss."""

    def __init__(self, words: Sequence[str]) -> None:
        self.found: set[bytes] = set()
        self.noticed: list[str] = []
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped = True
        self._process.kill()
        self._thread.join(30)

    def _run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            value = line.rstrip()
            if VALUE.fullmatch(value):
                self.found.add(value)
            else:
                self.noticed.append(value.decode())
        code = self._process.wait()
        if code and not self._is_stopped:
            self.noticed.append(f"exit code {code}")


def key_of(value: bytes) -> bytes:
    """Return the key of the record with that value: one of few, or of some its value."""
    number = sum(map(int, re.findall(rb"\d+", value)))
    return b"k%d" % (number % KEYS) if number % RARE else value


def stored(addresses: str, topic: str, isolation: str) -> list[tuple[int, bytes]]:
    """Return the offsets and values that a new consumer finds."""
    source = consumer(addresses, isolation_level=isolation, enable_partition_eof=True)
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + 60
    try:
        source.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            for message in source.consume(500, timeout=0.5):
                error = message.error()
                if error is None:
                    found.append((message.offset(), message.value()))  # type: ignore[arg-type]
                elif error.code() in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART):
                    return found
    finally:
        source.close()
    raise AssertionError("the end of the partition was not reached")


def _named(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}


def longest_gap(times: Sequence[float]) -> float:
    """Return the longest time between two acknowledgements, in s."""
    return max((after - before for before, after in pairwise(times)), default=0.0)
