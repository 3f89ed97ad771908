"""`__consumer_offsets` in Kafka's own tools: listed, described, and read by their formatter."""

import json

import pytest
from confluent_kafka import TopicPartition

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.jvm import Tools
from tests.interop.librdkafka import consumer

TOPICS = "org.apache.kafka.tools.TopicCommand"
NAME = "__consumer_offsets"


@pytest.fixture
def committed(default_broker: Broker) -> tuple[str, str]:
    """A topic, and a group with an offset of it."""
    topic, group = create_topic(default_broker.address), topic_name("group")
    source = consumer(default_broker.address, group)
    source.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    source.close()
    return topic, group


def test_the_topics_tool_lists_and_describes_it(
    default_broker: Broker, java_tools: Tools, committed: tuple[str, str]
) -> None:
    topic, _ = committed
    place = ("--bootstrap-server", default_broker.address)
    names = java_tools.tool(TOPICS, *place, "--list").split()
    assert {topic, NAME} <= set(names)
    names = java_tools.tool(TOPICS, *place, "--list", "--exclude-internal").split()
    assert topic in names and NAME not in names
    said = java_tools.tool(TOPICS, *place, "--describe", "--topic", NAME)
    head, *rows = said.splitlines()
    assert f"Topic: {NAME}" in head and "PartitionCount: 50" in head
    assert "cleanup.policy=compact" in head and len(rows) == 50
    said = java_tools.tool(TOPICS, *place, "--describe")
    assert f"Topic: {NAME}" in said and f"Topic: {topic}" in said
    said = java_tools.tool(TOPICS, *place, "--describe", "--exclude-internal")
    assert f"Topic: {NAME}" not in said and f"Topic: {topic}" in said


def test_the_formatter_of_the_console_consumer_reads_it(
    default_broker: Broker, java_tools: Tools, committed: tuple[str, str]
) -> None:
    topic, group = committed
    said = java_tools.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        default_broker.address,
        "--topic",
        NAME,
        "--from-beginning",
        "--formatter",
        "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
        "--timeout-ms",
        "5000",
    )
    said = said.replace("}{", "}\n{")  # the formatter prints no newline
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (row,) = [row for row in rows if row["key"]["data"].get("group") == group]
    assert row["key"]["data"] == {"group": group, "topic": topic, "partition": 0}
    assert row["value"]["data"]["offset"] == 7
