"""Kafka's own command line tools."""

import json
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from redis import Redis

from korvet.scripts.keys import Keys
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.jvm import Tools
from tests.interop.librdkafka import consumer, producer, send, take
from tests.interop.records import Record

TOOLS = "org.apache.kafka.tools"


def test_topics_are_created_described_altered_and_deleted(
    default_broker: Broker, java_tools: Tools
) -> None:
    name = topic_name()

    def topics(*words: str) -> str:
        place = ("--bootstrap-server", default_broker.address, "--topic", name)
        return java_tools.tool(f"{TOOLS}.TopicCommand", *place, *words)

    topics("--create", "--partitions", "2", "--config", "retention.ms=86400000")
    reported = topics("--describe")
    assert "PartitionCount: 2" in reported and "retention.ms=86400000" in reported
    topics("--alter", "--partitions", "3")
    assert "PartitionCount: 3" in topics("--describe")
    topics("--delete")


def test_configs_are_altered_and_described(default_broker: Broker, java_tools: Tools) -> None:
    name = create_topic(default_broker.address)

    def configs(*words: str) -> str:
        place = ("--bootstrap-server", default_broker.address, "--topic", name)
        return java_tools.tool("kafka.admin.ConfigCommand", *place, *words)

    configs("--alter", "--add-config", "retention.bytes=5000000,max.message.bytes=2000")
    reported = configs("--describe")
    assert "retention.bytes=5000000" in reported and "max.message.bytes=2000" in reported
    configs("--alter", "--delete-config", "retention.bytes")
    assert "retention.bytes" not in configs("--describe")


def test_settings_of_brokers_and_groups_change_while_they_run(
    default_broker: Broker, java_tools: Tools
) -> None:
    group = topic_name("group")

    def configs(*words: str) -> str:
        place = ("--bootstrap-server", default_broker.address)
        return java_tools.tool("kafka.admin.ConfigCommand", *place, *words)

    brokers = ("--entity-type", "brokers", "--entity-default")
    configs(*brokers, "--alter", "--add-config", "max.connections.per.ip=100000")
    assert "max.connections.per.ip=100000" in configs(*brokers, "--describe")
    configs(*brokers, "--alter", "--delete-config", "max.connections.per.ip")
    assert "max.connections.per.ip" not in configs(*brokers, "--describe")
    groups = ("--entity-type", "groups", "--entity-name", group)
    configs(*groups, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in configs(*groups, "--describe")


def test_the_cluster_is_looked_at_from_all_sides(default_broker: Broker, java_tools: Tools) -> None:
    name = create_topic(default_broker.address)

    def run(tool: str, *words: str) -> str:
        return java_tools.tool(
            f"{TOOLS}.{tool}", "--bootstrap-server", default_broker.address, *words
        )

    assert f'"partition":"{name}-0"' in run("LogDirsCommand", "--describe")
    elected = run(
        "LeaderElectionCommand", "--election-type", "preferred", "--topic", name, "--partition", "0"
    )
    assert f"already elected for partitions {name}-0" in elected
    assert "LeaderId:" in run("MetadataQuorumCommand", "describe", "--status")
    assert "No partition reassignments" in run("reassign.ReassignPartitionsCommand", "--list")


def test_a_partition_is_reassigned_to_where_it_is_under_a_throttle(
    default_broker: Broker, java_tools: Tools, tmp_path: Path
) -> None:
    name = create_topic(default_broker.address, partitions=2)
    found = AdminClient({"bootstrap.servers": default_broker.address}).list_topics(name, timeout=60)
    places = [
        {"topic": name, "partition": number, "replicas": [partition.leader]}
        for number, partition in found.topics[name].partitions.items()
    ]
    wanted = tmp_path / "reassignment.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": places}))

    def reassign(*words: str) -> str:
        place = ("--bootstrap-server", default_broker.address)
        tool = f"{TOOLS}.reassign.ReassignPartitionsCommand"
        return java_tools.tool(tool, *place, "--reassignment-json-file", str(wanted), *words)

    begun = reassign("--execute", "--throttle", "1000000")
    assert "The inter-broker throttle limit was set to 1000000 B/s" in begun
    assert f"Successfully started partition reassignments for {name}-0,{name}-1" in begun
    done = reassign("--verify")
    assert f"Reassignment of partition {name}-0 is completed." in done
    assert f"Clearing topic-level throttles on topic {name}" in done


def ongoing(broker: Broker) -> tuple[str, str, Producer]:
    """Write a record in a transaction; return the topic, the transaction's id and its producer."""
    topic, transaction = create_topic(broker.address), topic_name("transaction")
    writer = Producer({"bootstrap.servers": broker.address, "transactional.id": transaction})
    writer.init_transactions(60)
    writer.begin_transaction()
    writer.produce(topic, b"v", partition=0)
    writer.flush(60)
    return topic, transaction, writer


def test_transactions_are_listed_and_described(default_broker: Broker, java_tools: Tools) -> None:
    topic, transaction, writer = ongoing(default_broker)

    def run(*words: str) -> list[list[str]]:
        place = ("--bootstrap-server", default_broker.address)
        lines = java_tools.tool(f"{TOOLS}.TransactionsCommand", *place, *words).splitlines()
        return [line.split() for line in lines]

    (row,) = [row for row in run("list") if row[:1] == [transaction]]
    assert row[3] == "Ongoing"
    _, row = run("describe", "--transactional-id", transaction)
    assert (row[1], row[4], row[-1]) == (transaction, "Ongoing", f"{topic}-0")
    writer.abort_transaction(60)
    _, row = run("describe", "--transactional-id", transaction)
    assert row[4] == "CompleteAbort"


def test_a_hanging_transaction_is_found_and_aborted(
    default_broker: Broker, java_tools: Tools
) -> None:
    topic, transaction, _writer = ongoing(default_broker)

    def run(*words: str, fails: bool = False) -> list[list[str]]:
        place = ("--bootstrap-server", default_broker.address)
        tool = f"{TOOLS}.TransactionsCommand"
        return [
            line.split() for line in java_tools.tool(tool, *place, *words, fails=fails).splitlines()
        ]

    def hanging() -> list[list[str]]:
        rows = run("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
        return [row for row in rows if row[:1] == [topic]]

    place = ("--topic", topic, "--partition", "0")
    _, known = run("describe-producers", *place)
    start = ("--start-offset", known[-1])
    assert hanging() == [], "the coordinator will end it"
    run("abort", *place, *start, fails=True)
    with Redis(unix_socket_path=str(default_broker.folder / "data" / "redis.sock")) as redis:
        redis.unlink(Keys().transaction(transaction).transaction)
    (row,) = hanging()
    assert (row[1], row[5]) == ("0", known[-1])
    run("abort", *place, *start)
    assert hanging() == []
    _, known = run("describe-producers", *place)
    assert known[-1] == "None"


def test_a_group_is_described_reset_and_deleted(default_broker: Broker, java_tools: Tools) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    offsets = send(producer(address), topic, [Record(None, b"%d" % n) for n in range(4)])
    source = consumer(address, group)
    source.subscribe([topic])
    take(source, 4)
    source.commit(asynchronous=False)
    source.close()

    def groups(*words: str) -> str:
        tool = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
        return java_tools.tool(tool, "--bootstrap-server", address, "--group", group, *words)

    row = next(line.split() for line in groups("--describe").splitlines() if topic in line)
    assert row[:6] == [group, topic, "0", str(offsets[-1] + 1), str(offsets[-1] + 1), "0"]
    groups("--reset-offsets", "--to-offset", str(offsets[1]), "--topic", topic, "--execute")
    source = consumer(address, group)
    source.subscribe([topic])
    assert [message.offset() for message in take(source, 3)] == offsets[1:]
    source.close()
    assert "successful" in groups("--delete")


def test_offsets_are_printed(default_broker: Broker, java_tools: Tools) -> None:
    address = default_broker.address
    topic = create_topic(address, partitions=2)
    offsets = send(producer(address), topic, [Record(None, b"v")] * 3, 1)
    reported = java_tools.tool(
        f"{TOOLS}.GetOffsetShell", "--bootstrap-server", address, "--topic", topic
    )
    assert f"{topic}:1:{offsets[-1] + 1}" in reported.splitlines()


def test_lines_pass_through_the_console_tools(default_broker: Broker, java_tools: Tools) -> None:
    address, topic = default_broker.address, topic_name("auto")
    place = ("--bootstrap-server", address, "--topic", topic)
    java_tools.run(f"{TOOLS}.ConsoleProducer", *place, stdin="one\ntwo\n")
    reader = f"{TOOLS}.consumer.ConsoleConsumer"
    reported = java_tools.run(reader, *place, "--from-beginning", "--max-messages", "2")
    assert reported.splitlines() == ["one", "two"]


def test_the_api_versions_are_printed(default_broker: Broker, java_tools: Tools) -> None:
    tool = f"{TOOLS}.BrokerApiVersionsCommand"
    reported = java_tools.tool(tool, "--bootstrap-server", default_broker.address)
    for api in ("Produce(0)", "Fetch(1)", "JoinGroup(11)", "CreateTopics(19)"):
        assert api in reported


def test_users_are_altered_described_and_deleted(default_broker: Broker, java_tools: Tools) -> None:
    place = ("--bootstrap-server", default_broker.address, "--entity-type", "users")

    def configs(*words: str, fails: bool = False) -> str:
        return java_tools.tool("kafka.admin.ConfigCommand", *place, *words, fails=fails)

    alice = ("--entity-name", "tools-alice")
    credential = "SCRAM-SHA-512=[iterations=8192,password=s3cret]"
    configs("--alter", *alice, "--add-config", credential)
    assert "SCRAM-SHA-512=iterations=8192" in configs("--describe", *alice)
    assert "tools-alice" in configs("--describe")
    configs("--alter", *alice, "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM" not in configs("--describe", *alice)
