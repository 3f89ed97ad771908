"""Groups over several brokers and worker processes, and brokers killed at random moments.

`KORVET_FAULT_SEEDS` is the number of seeds of the fault test.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import consumer, eventually, producer, send
from tests.interop.members import Member, Place, Writer, settled, union
from tests.interop.records import Record
from tests.support.redis_servers import server

pytestmark = pytest.mark.korvet_only

SEEDS = range(int(os.environ.get("KORVET_FAULT_SEEDS", "2")))
PARTITIONS = 4
QUICK = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 50}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """Two brokers on one Redis."""
    with server("valkey") as redis:
        both = tuple(
            Broker(
                tmp_path / f"broker-{number}",
                {},
                ("--redis", redis.url, "--node-id", str(number)),
            )
            for number in (1, 2)
        )
        for broker in both:
            broker.start()
        yield both[0], both[1]
        for broker in both:
            broker.close()


def test_members_on_different_brokers_are_one_group(pair: tuple[Broker, Broker]) -> None:
    one, two = pair
    group, topic = topic_name("group"), create_topic(one.address, PARTITIONS)
    with Member(one.address, group, topic) as first, Member(two.address, group, topic) as second:
        settled([first, second], PARTITIONS)
        sink = producer(two.address)
        stored = {
            (p, o) for p in range(PARTITIONS) for o in send(sink, topic, [Record(None, b"v")], p)
        }
        eventually(lambda: union([first, second]) == stored)


def test_members_on_different_workers_are_one_group(tmp_path: Path) -> None:
    broker = Broker(tmp_path, {}, ("--workers", "2"))
    broker.start()
    group, topic = topic_name("group"), create_topic(broker.address, 6)
    members = [Member(broker.address, group, topic) for _ in range(6)]
    try:
        settled(members, 6)
        for member in members[:3]:
            member.leave()
        settled(members[3:], 6)
    finally:
        for member in members:
            member.leave()
        broker.close()


@pytest.mark.slow
def test_the_other_broker_takes_over_a_group_without_a_rebalance(
    pair: tuple[Broker, Broker],
) -> None:
    one, two = pair
    group, topic = topic_name("group"), create_topic(one.address, PARTITIONS)
    both = f"{one.address},{two.address}"
    with Member(both, group, topic, **QUICK) as first, Member(both, group, topic, **QUICK) as other:
        members = [first, other]
        settled(members, PARTITIONS)
        owned = [set(member.assigned) for member in members]
        rebalances = [member.rebalances for member in members]
        one.kill()
        sink = producer(two.address)
        stored = {
            (p, o) for p in range(PARTITIONS) for o in send(sink, topic, [Record(None, b"v")], p)
        }
        eventually(lambda: union(members) == stored)
        assert [member.assigned for member in members] == owned
        assert [member.rebalances for member in members] == rebalances
        assert max((first.seen + other.seen).values()) == 1
        one.start()


class Reader:
    """A consumer that reads and commits; `redone` has the records committed before their poll.

    It gives up partitions only between two batches, and commits only partitions that it owns:
    librdkafka and Kafka would accept others, too, under the new generation.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, committed: Counter[int]) -> None:
        self.seen: set[Place] = set()
        self.redone: list[tuple[Place, int]] = []
        self._committed = committed
        self._source: Consumer = consumer(
            bootstrap, group, session_timeout_ms=10_000, heartbeat_interval_ms=200, **QUICK
        )
        self._owned: set[int] = set()
        self._source.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._topic = topic
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._leave.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the reader's thread did not end"

    def _assigned(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._owned = {place.partition for place in places}

    def _revoked(self, _: Consumer, __: list[TopicPartition]) -> None:
        self._owned = set()

    def _run(self) -> None:
        while not self._leave.is_set():
            ends: dict[int, int] = {}
            before = self._committed.copy()
            for message in self._source.consume(20, timeout=0.05):
                if message.error() is None:
                    place = (message.partition(), message.offset())
                    if place[1] < before[place[0]]:
                        self.redone.append((place, before[place[0]]))
                    self.seen.add(place)
                    ends[place[0]] = place[1] + 1
            self._commit({number: end for number, end in ends.items() if number in self._owned})
        self._source.close()

    def _commit(self, ends: dict[int, int]) -> None:
        if not ends:
            return
        places = [TopicPartition(self._topic, *end) for end in ends.items()]
        try:
            for done in self._source.commit(offsets=places, asynchronous=False):
                if done.error is None:
                    self._committed[done.partition] = done.offset
        except KafkaException:
            pass  # unknown outcome: it does not count as committed


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_delivered_and_committed_work_is_not_redone(
    pair: tuple[Broker, Broker], seed: int
) -> None:
    random = Random(seed)
    both = ",".join(broker.address for broker in pair)
    group, topic = topic_name("group"), create_topic(pair[0].address, PARTITIONS)
    committed: Counter[int] = Counter()
    readers = [Reader(both, group, topic, committed) for _ in range(3)]
    with Writer(both, topic, PARTITIONS, **QUICK) as writer:
        writer.reach(20)
        for _ in range(4):
            victim = random.choice(pair)
            random.choice([victim.kill, victim.kill, victim.stop])()
            writer.reach(random.randrange(40))
            victim.start()
            writer.reach(random.randrange(40))
        writer.stop()
        eventually(lambda: set().union(*(reader.seen for reader in readers)) >= writer.stored, 60)
    for reader in readers:
        reader.leave()
    assert [reader.redone for reader in readers] == [[], [], []]
