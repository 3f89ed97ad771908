"""Check the hints for a name that no setting has."""

import pytest

from korvet.config.broker_settings import BROKER
from korvet.config.group_settings import GROUP
from korvet.config.setting import ConfigError, find_setting
from korvet.config.suggestions import hint, nearest
from korvet.config.topic_settings import TOPIC

SLIPS = [
    (BROKER, "num.partitons", "num.partitions"),
    (BROKER, "retention.ms", "log.retention.ms"),
    (BROKER, "offset-mode", "offset.mode"),
    (BROKER, "max.message.bytes", "message.max.bytes"),
    (TOPIC, "retention", "retention.ms"),
    (TOPIC, "retentionms", "retention.ms"),
    (TOPIC, "cleanup_policy", "cleanup.policy"),
    (TOPIC, "log.retention.ms", "retention.ms"),
    (TOPIC, "compresion.type", "compression.type"),
    (GROUP, "consumer.session.timeout", "consumer.session.timeout.ms"),
]


@pytest.mark.parametrize(("settings", "name", "meant"), SLIPS, ids=[row[1] for row in SLIPS])
def test_a_misspelt_name_gets_the_intended_one(
    settings: dict[str, object], name: str, meant: str
) -> None:
    assert hint(name, settings) == f"did you mean {meant}?"


KAFKAS = [
    (BROKER, "group.streams.assignor.offload.enable", "inside of Kafka's brokers"),
    (BROKER, "group.share.assignors", "inside of Kafka's brokers"),
    (BROKER, "offsets.topic.replication.factor", "no such internal topic"),
    (BROKER, "transaction.state.log.min.isr", "no such internal topic"),
    (BROKER, "group.consumer.assignment.interval.ms", "inside of Kafka's brokers"),
    (BROKER, "controller.quorum.voters", "no controllers"),
    (BROKER, "ssl.keystore.password", "key stores are PEM here"),
    (BROKER, "ssl.provider", "Java's security"),
    (TOPIC, "log.message.format.version", "Kafka's own storage"),
]


@pytest.mark.parametrize(("settings", "name", "reason"), KAFKAS, ids=[row[1] for row in KAFKAS])
def test_a_kafka_setting_without_effect_gets_the_reason(
    settings: dict[str, object], name: str, reason: str
) -> None:
    reported = hint(name, settings)
    assert reported.startswith("Kafka has it, but ") and reason in reported


@pytest.mark.parametrize("name", ["", "x", "partitions", "a" * 5000, "a." * 2000, "socket"])
def test_an_unlike_name_gets_the_command_that_lists_all(name: str) -> None:
    assert nearest(name, TOPIC) is None
    assert hint(name, TOPIC) == "`korvet settings` lists all."


def test_a_change_of_such_a_setting_is_refused_with_that() -> None:
    with pytest.raises(
        ConfigError, match=r"^Unknown group config 'streams\.assignor\.offload\.enable': Kafka"
    ):
        find_setting(GROUP, "streams.assignor.offload.enable", "group config")
