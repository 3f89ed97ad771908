"""Kafka's own tools on share groups: offsets, members, deletion, configs, features."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple

import pytest
from confluent_kafka import Producer, ShareConsumer

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.jvm import Tools

TOOLS = "org.apache.kafka.tools"
RECORDS = 10
PATIENCE_S = 30


class Shares(NamedTuple):
    """Kafka's tools on a broker, a group and a topic of one partition with records."""

    tools: Tools
    address: str
    group: str
    topic: str

    def tool(self, name: str, *words: str, fails: bool = False) -> str:
        return self.tools.tool(name, "--bootstrap-server", self.address, *words, fails=fails)

    def groups(self, *words: str) -> list[list[str]]:
        """Run kafka-share-groups; return the lines about group or topic, split into words."""
        reported = self.tool(f"{TOOLS}.consumer.group.ShareGroupCommand", *words)
        lines = [line.split() for line in reported.splitlines()]
        return [line for line in lines if line and line[0] in (self.group, self.topic)]

    def of_group(self, *words: str) -> list[list[str]]:
        return self.groups("--group", self.group, *words)

    def configs(self, *words: str, fails: bool = False) -> str:
        entity = ("--entity-type", "groups", "--entity-name", self.group)
        is_old = "kafka-tools-4.3" in self.tools.classpath
        command = "kafka.admin.ConfigCommand" if is_old else f"{TOOLS}.ConfigCommand"
        return self.tool(command, *entity, *words, fails=fails)

    @contextmanager
    def member(self) -> Iterator[ShareConsumer]:
        """Yield a member of the group that has its assignment."""
        config = {"bootstrap.servers": self.address, "group.id": self.group, "log_level": "0"}
        with ShareConsumer(config) as consumer:
            consumer.subscribe([self.topic])
            deadline = monotonic() + PATIENCE_S
            while self.topic not in str(self.of_group("--describe", "--members")):
                assert monotonic() < deadline, "the member does not join"
                consumer.poll(0.2)
            yield consumer


@pytest.fixture
def shares(default_broker: Broker, share_tools: Tools) -> Shares:
    """A group that does not exist yet, and a topic with records."""
    topic = create_topic(default_broker.address)
    producer = Producer({"bootstrap.servers": default_broker.address})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
    producer.flush()
    return Shares(share_tools, default_broker.address, topic_name("shares"), topic)


def test_offsets_are_reset_described_and_deleted(shares: Shares) -> None:
    at_topic = ("--topic", shares.topic)
    reset = ("--reset-offsets", *at_topic)
    (planned,) = shares.of_group(*reset, "--to-latest", "--dry-run")
    assert planned[:3] == [shares.group, shares.topic, "0"]
    assert shares.groups("--list") == []
    (moved,) = shares.of_group(*reset, "--to-earliest", "--execute")
    start, end = int(moved[3]), int(planned[3])
    assert end - start >= RECORDS
    assert shares.of_group("--describe") == [
        [shares.group, shares.topic, "0", str(start), str(RECORDS)]
    ]
    assert shares.groups("--list", "--state") == [[shares.group, "Empty"]]
    shares.of_group(*reset, "--to-latest", "--execute")
    (at_end,) = shares.of_group("--describe", "--offsets")
    assert at_end[3:] == [str(end), "0"]
    assert shares.of_group("--delete-offsets", *at_topic) == [[shares.topic, "Successful"]]
    assert shares.of_group("--describe", "--offsets") == []
    reported = shares.of_group("--delete-offsets", *at_topic)
    assert reported[0][:2] == [shares.topic, "Error:"]


def test_a_group_with_members_is_described_and_neither_moved_nor_deleted(shares: Shares) -> None:
    with shares.member():
        ((group, *member),) = shares.of_group("--describe", "--members")
        assert group == shares.group and f"{shares.topic}:0" in member[-1]
        ((_, _, _, state, members),) = shares.of_group("--describe", "--state")
        assert (state, members) == ("Stable", "1")
        command = f"{TOOLS}.consumer.group.ShareGroupCommand"
        group_words = ("--group", shares.group)
        reset = ("--reset-offsets", "--topic", shares.topic, "--to-earliest", "--execute")
        shares.tool(command, *group_words, *reset, fails=True)
        reported = shares.tool(command, *group_words, "--delete")
        assert "successful" not in reported
    deadline = monotonic() + PATIENCE_S
    while shares.groups("--list", "--state") != [[shares.group, "Empty"]]:
        assert monotonic() < deadline, "the member does not leave"
    reported = shares.tool(command, *group_words, "--delete")
    assert "successful" in reported
    assert shares.groups("--list") == []


def test_groups_are_listed_by_their_type(shares: Shares) -> None:
    shares.of_group("--reset-offsets", "--topic", shares.topic, "--to-earliest", "--execute")

    def listed(*words: str) -> list[list[str]]:
        reported = shares.tool(f"{TOOLS}.GroupsCommand", "--list", *words)
        return [line.split() for line in reported.splitlines() if line.startswith(shares.group)]

    assert listed() == listed("--share") == [[shares.group, "Share", "share"]]
    assert listed("--consumer") == []


def test_configs_of_a_share_group_are_altered_described_and_checked(shares: Shares) -> None:
    wanted = "share.auto.offset.reset=by_duration:PT1H,share.record.lock.duration.ms=20000"
    shares.configs("--alter", "--add-config", wanted)
    reported = shares.configs("--describe")
    assert "share.auto.offset.reset=by_duration:PT1H" in reported
    assert "share.record.lock.duration.ms=20000" in reported
    for wrong in ("share.auto.offset.reset=never", "share.record.lock.duration.ms=999"):
        shares.configs("--alter", "--add-config", wrong, fails=True)
    shares.configs("--alter", "--delete-config", "share.auto.offset.reset")
    assert "share.auto.offset.reset" not in shares.configs("--describe")
    assert "share.delivery.count.limit=5" in shares.configs("--describe", "--all")


def test_the_feature_of_share_groups_is_finalized(shares: Shares) -> None:
    reported = shares.tool(f"{TOOLS}.FeatureCommand", "describe")
    (line,) = (line for line in reported.splitlines() if "share.version" in line)
    # Kafka 4.4 has level 2, with dead letter queues.
    assert re.search(r"FinalizedVersionLevel: [12]\b", line)


def values(reported: str) -> list[int]:
    return sorted(int(line) for line in reported.split() if line.isdigit())


def test_the_console_share_consumer_accepts_releases_and_rejects(shares: Shares) -> None:
    shares.configs("--alter", "--add-config", "share.auto.offset.reset=earliest")

    def consume(count: int, *words: str) -> list[int]:
        place = ("--topic", shares.topic, "--group", shares.group, "--timeout-ms", "20000")
        command = f"{TOOLS}.consumer.ConsoleShareConsumer"
        return values(shares.tool(command, *place, "--max-messages", str(count), *words))

    assert consume(RECORDS, "--release") == list(range(RECORDS))
    assert consume(RECORDS - 2) == list(range(RECORDS - 2))
    assert consume(2, "--reject") == [RECORDS - 2, RECORDS - 1]
    (row,) = shares.of_group("--describe", "--offsets")
    assert row[-1] == "0"


def test_the_verifiable_share_consumer_finds_all_records(shares: Shares) -> None:
    shares.configs("--alter", "--add-config", "share.auto.offset.reset=earliest")
    reported = shares.tool(
        f"{TOOLS}.VerifiableShareConsumer",
        "--topic",
        shares.topic,
        "--group-id",
        shares.group,
        "--max-messages",
        str(RECORDS),
    )
    rows = [json.loads(line) for line in reported.splitlines()]
    counted = [row["count"] for row in rows if row["name"] == "offsets_acknowledged"]
    assert sum(counted) >= RECORDS
