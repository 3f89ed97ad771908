"""Members of a consumer group, each polling in its own thread, and a writer."""

import itertools
import threading
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.interop import librdkafka
from tests.interop.librdkafka import eventually

PATIENCE = 60.0
Place = tuple[int, int]
"""Partition and offset of one record."""


class Member:
    """A confluent-kafka consumer that polls and commits until it leaves."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.seen: Counter[Place] = Counter()
        self.assigned: set[int] = set()
        self.rebalances = 0
        self.errors: list[KafkaError] = []
        self._leave = threading.Event()
        quick = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000}
        if settings.get("group_protocol") == "consumer":
            quick = {}
        self.consumer: Consumer = librdkafka.consumer(bootstrap, group, **{**quick, **settings})
        self._cooperative = settings.get("partition_assignment_strategy") == "cooperative-sticky"
        self._cooperative |= settings.get("group_protocol") == "consumer"
        # A static member leaves the group if it unsubscribes, and stays in it if it only closes.
        self._static = "group_instance_id" in settings
        self.consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Commit what the member has read, leave the group, and end the thread."""
        self._leave.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the member's thread did not end"

    def _run(self) -> None:
        while not self._leave.is_set():
            self._consume()
        self._commit()
        if not self._static:
            self._unsubscribe()
        self.consumer.close()

    def _unsubscribe(self) -> None:
        """Leave the group and handle the pending rebalance events."""
        # Inside close() librdkafka ends the group without waiting for such an event's callback
        # (librdkafka#4884). The callback's assign() or unassign() may then never return, and holds
        # the GIL: pytest itself stops, until faulthandler's time limit ends the process.
        self.consumer.unsubscribe()
        while self._consume():
            pass

    def _consume(self) -> bool:
        """Record the next messages and handle events; return whether there were messages."""
        messages = self.consumer.consume(50, timeout=0.05)
        for message in messages:
            self._note(message)
        return bool(messages)

    def _note(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.seen[message.partition(), message.offset()] += 1
        else:
            self.errors.append(error)

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        if self._cooperative:
            consumer.incremental_assign(partitions)
            self.assigned |= {place.partition for place in partitions}
        else:
            consumer.assign(partitions)
            self.assigned = {place.partition for place in partitions}

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self.assigned = self.assigned - {place.partition for place in partitions}
        if self._cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except Exception as refusal:
            # An earlier generation, or nothing to commit: the next owner reads the records again.
            self.errors.append(refusal.args[0])


class Writer:
    """A thread that writes to all partitions of a topic in turn and records what was stored."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, pause: float = 0.002, **settings: Any
    ) -> None:
        self.stored: set[Place] = set()
        self._sink: Producer = librdkafka.producer(bootstrap, **settings)
        self._stop = threading.Event()
        self._arguments = (topic, partitions, pause)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop, and wait until everything written is acknowledged."""
        self._stop.set()
        self._thread.join(PATIENCE)
        assert self._sink.flush(PATIENCE) == 0

    def reach(self, count: int) -> None:
        """Wait until `count` more records are stored."""
        goal = len(self.stored) + count
        eventually(lambda: len(self.stored) >= goal, PATIENCE)

    def _run(self) -> None:
        topic, partitions, pause = self._arguments
        for number in itertools.count():
            if self._stop.wait(pause):
                return
            self._sink.produce(
                topic, b"%d" % number, partition=number % partitions, on_delivery=self._stored
            )
            self._sink.poll(0)

    def _stored(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.stored.add((message.partition(), message.offset()))


def settled(members: list[Member], partitions: int) -> None:
    """Wait until each partition has one owner among the members, and the load is even."""

    def even() -> bool:
        owned = [len(member.assigned) for member in members]
        every = set().union(*(member.assigned for member in members))
        whole = sum(owned) == partitions and every == set(range(partitions))
        return whole and max(owned) - min(owned) <= 1

    eventually(even, PATIENCE)


def union(members: list[Member]) -> set[Place]:
    """Return the records that the members have read together."""
    seen: set[Place] = set()
    for member in members:
        seen |= set(member.seen)
    return seen
