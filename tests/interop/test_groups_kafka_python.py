"""Check groups of kafka-python and its admin client, at the newest and at older versions."""

import itertools
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.kafka_python import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    TopicPartition,
    consumer,
    send,
    take,
)
from tests.interop.librdkafka import eventually
from tests.interop.members import Writer
from tests.interop.records import Record

PARTITIONS = 4
QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000, "enable_auto_commit": False}
OLDER = [(0, 9), (0, 10, 2), (0, 11), (1, 1), (2, 1), (2, 8), (3, 9)]


POLL_MS = 1000
"""Long polls: kafka-python 3 loses an assignment that arrives between two polls."""


class Owned(ConsumerRebalanceListener):  # type: ignore[misc, unused-ignore]
    """The partitions of a member, by its rebalance callbacks."""

    def __init__(self) -> None:
        self.partitions: set[int] = set()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.partitions = self.partitions | {place.partition for place in assigned}

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.partitions = self.partitions - {place.partition for place in revoked}


class Member(threading.Thread):
    """A consumer that reads and commits in its own thread."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        super().__init__(daemon=True)
        self.seen: set[tuple[int, int]] = set()
        self._owned = Owned()
        self._arguments = (bootstrap, {"group_id": group, **QUICK, **settings}, topic)
        self._leave = threading.Event()
        self.start()

    @property
    def owned(self) -> set[int]:
        """The partitions that the member reads."""
        return self._owned.partitions

    def leave(self) -> None:
        """Leave the group and end the thread."""
        self._leave.set()
        self.join(30)
        assert not self.is_alive()

    def run(self) -> None:
        """Read and commit until `leave` is called."""
        bootstrap, settings, topic = self._arguments
        with consumer(bootstrap, **settings) as source:
            source.subscribe([topic], listener=self._owned)
            while not self._leave.is_set():
                for records in source.poll(timeout_ms=POLL_MS).values():
                    self.seen |= {(record.partition, record.offset) for record in records}


def settled(*members: Member) -> None:
    """Wait until each partition has one owner and the load is even."""

    def even() -> bool:
        owned = sorted(itertools.chain(*(member.owned for member in members)))
        sizes = [len(member.owned) for member in members]
        return owned == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1

    eventually(even, 30)


def test_members_come_and_go_and_nothing_is_missed(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address, partitions=PARTITIONS)
    with Writer(address, topic, PARTITIONS) as writer:
        first = Member(address, group, topic)
        settled(first)
        second, third = Member(address, group, topic), Member(address, group, topic)
        settled(first, second, third)
        first.leave()
        settled(second, third)
        writer.reach(20)
        writer.stop()
        members = (first, second, third)
        eventually(lambda: set().union(*(m.seen for m in members)) == writer.stored)
    second.leave()
    third.leave()


@pytest.mark.korvet_only
@pytest.mark.parametrize("version", OLDER, ids=lambda version: ".".join(map(str, version)))
def test_an_older_client_joins_commits_and_returns(
    default_broker: Broker, version: tuple[int, ...]
) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    offsets = send(address, topic, [Record(b"%d" % n, b"v") for n in range(6)])
    settings = {"group_id": group, "api_version": version, **QUICK}
    for part in (offsets[:3], offsets[3:]):
        with consumer(address, **settings) as source:
            source.subscribe([topic])
            assert [record.offset for record in take(source, 3)][:3] == part
            source.seek(TopicPartition(topic, 0), part[-1] + 1)
            source.commit()


@pytest.mark.korvet_only
def test_a_client_of_0_8_keeps_its_offsets_without_a_group(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    offsets = send(address, topic, [Record(b"%d" % n, b"v") for n in range(4)])
    settings = {"group_id": group, "api_version": (0, 8, 2), "enable_auto_commit": False}
    place = TopicPartition(topic, 0)
    with consumer(address, **settings) as source:
        source.assign([place])
        take(source, 2)
        source.commit()
    with consumer(address, **settings) as source:
        source.assign([place])
        assert source.committed(place) == offsets[1] + 1
        assert [record.offset for record in take(source, 2)] == offsets[2:]


def test_groups_are_listed_described_reset_and_deleted(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address, partitions=PARTITIONS)
    admin = KafkaAdminClient(bootstrap_servers=address)
    member = Member(address, group, topic)
    settled(member)
    found = described(admin, group)
    assert "stable" in str(found["group_state"]).lower()
    assert len(found["members"]) == 1
    member.leave()
    eventually(lambda: "empty" in str(described(admin, group)["group_state"]).lower())
    place = TopicPartition(topic, 1)
    with consumer(address, group_id=group, enable_auto_commit=False) as source:
        source.assign([place])
        source.seek(place, 3)
        source.commit()
    assert admin.list_group_offsets({group: None})[group][place].offset == 3
    admin.delete_group_offsets(group, [place])
    assert place not in admin.list_group_offsets({group: None})[group]
    admin.delete_groups([group])
    assert group not in {row["group_id"] for row in admin.list_groups()}
    admin.close()


def described(admin: KafkaAdminClient, group: str) -> dict[str, Any]:
    """Return one group as the admin client describes it."""
    answer = admin.describe_groups([group])
    found: dict[str, Any] = answer[group] if isinstance(answer, dict) else answer[0]
    return found
