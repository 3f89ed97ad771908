"""Check Kafka Streams with `group.protocol=streams` (KIP-1071): standby tasks, kills, tools."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from korvet.wire.messages.list_groups import ListGroupsRequest
from korvet.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
)
from tests.interop import librdkafka
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.jvm import Tools
from tests.interop.librdkafka import eventually
from tests.interop.test_exactly_once import HURRIED, SEEDS, Application
from tests.interop.test_streams import MEMORY, PATIENCE_S, Counts
from tests.interop.test_transactions import write
from tests.support.raw_client import Peer
from tests.support.redis_servers import server

pytestmark = [pytest.mark.korvet_only, pytest.mark.slow]

COMMAND = "org.apache.kafka.tools.streams.StreamsGroupCommand"
SHORT = {
    "group.streams.session.timeout.ms": "3000",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "500",
}
LINE = "a b c d e f g h"
EOS = ["processing.guarantee=exactly_once_v2", "transaction.timeout.ms=4000"]


class Words:
    """An application that counts words, its topics, and what it counted."""

    def __init__(self, tools: Tools, folder: Path, address: str, partitions: int = 2) -> None:
        self.tools, self.folder, self.address = tools, folder, address
        self.name = topic_name("words")
        self.origin = create_topic(address, partitions=partitions)
        self.result = create_topic(address, partitions=2)
        self.partitions = partitions
        self.counts = Counts(address, self.result)
        self.writer = librdkafka.producer(address)
        self.instances: list[Application] = []
        self.sent = self.started = 0

    def instance(self, *settings: str, origin: str = "") -> Path:
        """Start one more instance and return its log."""
        self.started += 1
        log = self.folder / f"{self.started}.log"
        words = [self.address, self.name, origin or self.origin, self.result]
        words += [str(log.with_suffix("")), "auto.offset.reset=earliest", "group.protocol=streams"]
        words += ["commit.interval.ms=100", MEMORY, *settings]
        application = Application(self.tools.words("WordCount", *words), log)
        self.instances.append(application)
        application.keep_alive()
        return log

    def write(self, lines: int) -> None:
        """Produce lines to be counted."""
        write(self.writer, self.origin, [LINE] * lines, self.partitions)
        self.sent += lines * len(LINE.split())

    def counted(self) -> bool:
        """Return whether every word was counted."""
        return self.has_counted(self.sent)

    def has_counted(self, words: int) -> bool:
        """Return whether at least `words` words were counted."""
        return sum(self.counts.read().by_word.values()) >= words

    def described(self, address: str = "") -> DescribedGroup:
        """Return the group as the broker describes it."""
        asked = StreamsGroupDescribeRequest(
            group_ids=[self.name], include_authorized_operations=False
        )
        host = (address or self.address).split(",")[0]
        with Peer(host) as peer:
            found: DescribedGroup = peer.ask("StreamsGroupDescribe", 0, asked).groups[0]
            return found

    def tool(self, *words: str, fails: bool = False) -> list[list[str]]:
        """Run kafka-streams-groups; return its lines, split into words."""
        reported = self.tools.tool(COMMAND, "--bootstrap-server", self.address, *words, fails=fails)
        return [line.split() for line in reported.splitlines() if line.strip()]

    def of_group(self, *words: str) -> list[list[str]]:
        """Run kafka-streams-groups for the group; return the lines about it or its topics."""
        lines = self.tool("--group", self.name, *words)
        return [line for line in lines if line[0] in (self.name, self.origin)]


@contextmanager
def counting(tools: Tools, folder: Path, address: str, partitions: int = 2) -> Iterator[Words]:
    """Yield an application without instances, and kill all its instances at the end."""
    words = Words(tools, folder, address, partitions)
    try:
        yield words
    finally:
        for each in words.instances:
            each.kill()
        words.counts.close()


def is_stable(words: Words, members: int) -> bool:
    found = words.described()
    return found.group_state == "Stable" and len(found.members) == members


def tasks(found: DescribedGroup, kind: str) -> list[tuple[str, int]]:
    return sorted(
        (row.subtopology_id, number)
        for member in found.members
        for row in getattr(member.assignment, f"{kind}_tasks")
        for number in row.partitions
    )


EVERY = [("0", 0), ("0", 1), ("1", 0), ("1", 1)]


def test_standby_tasks_take_over_where_an_instance_is_killed(
    tmp_path: Path, java_tools: Tools
) -> None:
    broker = Broker(tmp_path / "broker", SHORT)
    with broker, counting(java_tools, tmp_path, broker.address) as words:
        java_tools.tool(
            "kafka.admin.ConfigCommand",
            "--bootstrap-server",
            words.address,
            "--alter",
            "--entity-type",
            "groups",
            "--entity-name",
            words.name,
            "--add-config",
            "streams.num.standby.replicas=1",
        )
        for _ in range(2):
            words.instance(*EOS)
        eventually(lambda: is_stable(words, 2), PATIENCE_S)
        words.write(20)
        eventually(words.counted, PATIENCE_S)
        found = words.described()
        assert tasks(found, "active") == EVERY
        assert tasks(found, "standby") == [("1", 0), ("1", 1)]
        processes = {member.process_id for member in found.members}
        assert len(processes) == 2
        words.instances[0].kill()
        words.write(20)
        eventually(words.counted, PATIENCE_S)
        assert tasks(words.described(), "active") == EVERY
        assert tasks(words.described(), "standby") == []
        assert words.counts.steps_back == 0
        assert set(words.counts.by_word.values()) == {40}


def test_instances_and_threads_share_tasks_and_internal_topics_have_their_configs(
    tmp_path: Path, default_broker: Broker, share_tools: Tools
) -> None:
    with counting(share_tools, tmp_path, default_broker.address, partitions=6) as words:
        words.instance("num.stream.threads=2", *EOS)
        words.write(30)
        eventually(words.counted, PATIENCE_S)
        words.instance("num.stream.threads=1", *EOS)
        eventually(lambda: is_stable(words, 3), PATIENCE_S)
        held = [
            sum(len(row.partitions) for row in member.assignment.active_tasks)
            for member in words.described().members
        ]
        assert held == [4, 4, 4]
        words.write(30)
        eventually(words.counted, PATIENCE_S)
        assert set(words.counts.by_word.values()) == {60}
        admin = AdminClient({"bootstrap.servers": words.address})
        for name, wanted in (
            ("counts-changelog", {"cleanup.policy": "compact"}),
            ("counts-repartition", {"cleanup.policy": "delete", "retention.ms": "-1"}),
        ):
            topic = f"{words.name}-{name}"
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
            configs = admin.describe_configs([resource])[resource].result(60)
            assert {key: configs[key].value for key in wanted} == wanted
            assert len(admin.list_topics(topic, 15).topics[topic].partitions) == 6


def test_an_application_continues_at_another_broker_in_the_same_epoch(
    tmp_path: Path, java_tools: Tools
) -> None:
    with server("valkey") as redis, ExitStack() as stack:
        brokers = [
            Broker(tmp_path / node, {}, ("--redis", redis.url, "--node-id", node))
            for node in ("1", "2")
        ]
        for broker in brokers:
            stack.enter_context(broker)
        address = ",".join(broker.address for broker in brokers)
        words = stack.enter_context(counting(java_tools, tmp_path, address))
        for _ in range(2):
            words.instance()
        words.write(20)
        eventually(words.counted, PATIENCE_S)
        eventually(lambda: is_stable(words, 2), PATIENCE_S)
        before = words.described(brokers[1].address)
        brokers[0].kill()
        words.write(20)
        eventually(words.counted, PATIENCE_S)
        after = words.described(brokers[1].address)
        assert (after.group_state, after.group_epoch) == ("Stable", before.group_epoch)
        assert min(words.counts.by_word.values()) >= 40
        brokers[0].start()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_instances_killed_at_random_lose_and_double_nothing(
    tmp_path: Path, java_tools: Tools, seed: int
) -> None:
    random = Random(seed)
    broker = Broker(tmp_path / "broker", SHORT | {"group.streams.num.standby.replicas": "1"})
    with broker, counting(java_tools, tmp_path, broker.address, partitions=4) as words:
        for _ in range(3):
            words.instance("num.stream.threads=2", *EOS)
        for _ in range(3 if HURRIED else 8):
            words.write(random.randrange(20, 60))
            half = words.sent - random.randrange(words.sent)
            eventually(lambda half=half: words.has_counted(half), PATIENCE_S)  # type: ignore[misc]
            if random.random() < 0.3:
                broker.kill()
                broker.start()
            else:
                killed = random.choice(words.instances)
                killed.kill()
                killed.keep_alive()
        eventually(words.counted, PATIENCE_S)
        assert set(words.counts.by_word.values()) == {words.sent // len(LINE.split())}
        assert words.counts.steps_back == 0
        eventually(lambda: is_stable(words, 6), PATIENCE_S)
        found = words.described()
        every = [(sub, number) for sub in "01" for number in range(4)]
        assert tasks(found, "active") == every
        assert tasks(found, "standby") == [place for place in every if place[0] == "1"]


def test_an_application_may_change_its_protocol_and_keeps_its_counts(
    tmp_path: Path, java_tools: Tools
) -> None:
    broker = Broker(tmp_path / "broker", SHORT)
    with broker, counting(java_tools, tmp_path, broker.address) as words:
        for life, protocol in enumerate(("classic", "streams", "classic"), 1):
            session = ["session.timeout.ms=1500", "heartbeat.interval.ms=300"]
            words.instance(f"group.protocol={protocol}", *EOS, *session)
            words.write(10)
            eventually(words.counted, PATIENCE_S)
            assert set(words.counts.by_word.values()) == {10 * life}
            words.instances.pop().kill()
            eventually(lambda: [words.name, "Empty"] in _listed(words), PATIENCE_S)


def _listed(words: Words) -> list[list[str]]:
    with Peer(words.address) as peer:
        asked = ListGroupsRequest(states_filter=[], types_filter=[])
        return [[row.group_id, row.group_state] for row in peer.ask("ListGroups", 5, asked).groups]


def test_a_source_topic_may_come_later_and_its_absence_is_an_error_after_that(
    tmp_path: Path, default_broker: Broker, java_tools: Tools
) -> None:
    with counting(java_tools, tmp_path, default_broker.address) as words:
        late = topic_name("late")
        log = words.instance(origin=late)
        eventually(lambda: words.described().group_state == "NotReady", PATIENCE_S)
        admin = AdminClient({"bootstrap.servers": words.address})
        admin.create_topics([NewTopic(late, 2)])[late].result(60)
        write(words.writer, late, [LINE] * 10, 2)
        words.sent = 80
        eventually(words.counted, PATIENCE_S)
        words.instances[0].kill()
        words.name = topic_name("never")
        log = words.instance(origin=topic_name("never"))
        eventually(lambda: "MissingSourceTopicException" in log.read_text(), PATIENCE_S)


def test_a_fatal_error_of_one_instance_shuts_all_down(
    tmp_path: Path, default_broker: Broker, share_tools: Tools
) -> None:
    with counting(share_tools, tmp_path, default_broker.address) as words:
        logs = [words.instance(), words.instance()]
        eventually(lambda: is_stable(words, 2), PATIENCE_S)
        write(words.writer, words.origin, ["!"])
        eventually(
            lambda: all("PENDING_ERROR" in log.read_text() or "PENDING_SHUTDOWN" in log.read_text()
                        for log in logs),
            PATIENCE_S,
        )  # fmt: skip
        eventually(lambda: words.described().group_state == "Empty", PATIENCE_S)


def test_instances_know_the_partitions_of_all_user_endpoints(
    tmp_path: Path, java_tools: Tools
) -> None:
    settings = SHORT | {"group.streams.num.standby.replicas": "1"}
    broker = Broker(tmp_path / "broker", settings)
    with broker, counting(java_tools, tmp_path, broker.address) as words:
        logs = [words.instance(f"application.server=host:{port}") for port in (7001, 7002)]
        known = "hosts host:7001=1+1 host:7002=1+1"
        eventually(lambda: all(known in log.read_text() for log in logs), PATIENCE_S)


def test_kafkas_tool_lists_describes_resets_and_deletes(
    tmp_path: Path, own_broker: Broker, share_tools: Tools
) -> None:
    with counting(share_tools, tmp_path, own_broker.address) as words:
        words.instance("client.id=me")
        words.write(10)
        eventually(words.counted, PATIENCE_S)
        assert [words.name] in words.tool("--list")
        assert [words.name, "Stable"] in words.tool("--list", "--state")
        (row,) = words.of_group("--describe", "--state")  # Kafka 4.4 adds the assignor
        assert "Stable" in row
        assert row[-1] == "1"
        ((_, _, _, client, *held),) = words.of_group("--describe", "--members")
        assert client == "me-StreamThread-1-consumer"
        assert held == ["ACTIVE:", "0:[0,1];", "1:[0,1];"]
        eventually(
            lambda: (
                sorted(row[1:] for row in words.of_group("--describe"))
                == sorted(
                    [topic, number, "0"]
                    for topic in (words.origin, f"{words.name}-counts-repartition")
                    for number in "01"
                )
            ),
            PATIENCE_S,
        )
        reset = ("--reset-offsets", "--group", words.name, "--to-earliest", "--all-input-topics")
        reported = words.tool(*reset, "--execute")
        assert any("inactive," in line for line in reported)
        words.instances.pop().kill()
        words.tool("--version")
        _leave(words)
        assert [words.name, "Empty"] in words.tool("--list", "--state")
        rows = words.of_group("--reset-offsets", "--to-earliest", "--all-input-topics", "--execute")
        assert sorted(row[:3] for row in rows) == [
            [words.name, words.origin, number] for number in "01"
        ]
        assert words.of_group("--delete-offsets", "--input-topic", words.origin) == [
            [words.origin, number, "Successful"] for number in "01"
        ]
        words.tool("--delete", "--group", words.name, "--delete-all-internal-topics")
        assert words.tool("--list") == []
        listed = AdminClient({"bootstrap.servers": words.address}).list_topics(timeout=15).topics
        assert not [name for name in listed if name.startswith(words.name)]


def _leave(words: Words) -> None:
    """Remove the members of killed instances, as their session timeout would."""
    from korvet.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

    with Peer(words.address) as peer:
        for member in words.described().members:
            leaving = StreamsGroupHeartbeatRequest(
                group_id=words.name,
                member_id=member.member_id,
                member_epoch=-1,
                endpoint_information_epoch=0,
            )
            assert peer.ask("StreamsGroupHeartbeat", 0, leaving).error_code == 0
