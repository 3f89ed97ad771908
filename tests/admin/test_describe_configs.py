"""DescribeConfigs and ListConfigResources, with the codes of Apache Kafka 4.3.0."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.config.setting import Kind, Source
from korvet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from korvet.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.connected_broker import Broker

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


async def describe(
    broker: Broker,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    version: int = 4,
    **wishes: bool,
) -> Any:
    row = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return (await broker.ask(DescribeConfigsRequest(resources=[row], **wishes), version)).results[0]


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "absent", E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", E.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", E.INVALID_TOPIC_EXCEPTION),
        (BROKER, "9", E.INVALID_REQUEST),
        (BROKER, "x", E.INVALID_REQUEST),
        (BROKER, "9" * 5000, E.INVALID_REQUEST),
        (LOGGER, "9", E.INVALID_REQUEST),
        (LOGGER, "", E.INVALID_REQUEST),
        (GROUP, "", E.INVALID_REQUEST),
        (METRICS, "", E.INVALID_REQUEST),
        (0, "x", E.INVALID_REQUEST),
        (99, "x", E.INVALID_REQUEST),
    ],
)
async def test_what_has_no_configs_is_refused(
    broker: Broker, kind: int, name: str, error: E
) -> None:
    answer = await describe(broker, kind, name)
    assert E(answer.error_code) is error
    assert (answer.resource_type, answer.resource_name, answer.configs) == (kind, name, [])


async def test_an_unknown_resource_type_fails_all_resources_of_the_request(broker: Broker) -> None:
    await broker.create("t")
    rows = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((TOPIC, "t"), (99, "x"), (BROKER, "7"))
    ]
    answer = await broker.ask(DescribeConfigsRequest(resources=rows))
    assert [(row.error_code, row.resource_name, row.configs) for row in answer.results] == [
        (E.INVALID_REQUEST, name, []) for name in ("t", "x", "7")
    ]


async def test_no_subscription_to_client_metrics_has_configs(broker: Broker) -> None:
    answer = await describe(broker, METRICS, "m")
    assert (answer.error_code, answer.configs) == (E.NONE, [])


@pytest.mark.parametrize("version", range(5))
async def test_a_topics_configs_come_with_their_sources(broker: Broker, version: int) -> None:
    await broker.create("t", retention_ms="1000")
    answer = await describe(broker, TOPIC, "t", ["retention.ms", "retention.bytes"], version)
    found = {row.name: row for row in answer.configs}
    assert {name: row.value for name, row in found.items()} == {
        "retention.ms": "1000",
        "retention.bytes": "-1",
    }
    if version == 0:
        assert [found[name].is_default for name in sorted(found)] == [True, False]
    else:
        assert found["retention.ms"].config_source == Source.DYNAMIC_TOPIC
        assert found["retention.bytes"].config_source == Source.DEFAULT
    if version >= 3:
        assert found["retention.ms"].config_type == Kind.LONG


async def test_a_repeated_word_of_a_list_is_returned_once(broker: Broker) -> None:
    await broker.create("t", cleanup_policy=" compact , delete,compact ")
    (row,) = (await describe(broker, TOPIC, "t", ["cleanup.policy"])).configs
    assert row.value == "compact,delete"
    topic = await broker.services.topics.get("t")
    assert topic is not None and topic.policy.compact and topic.policy.delete


async def test_no_keys_and_an_empty_list_return_all_configs(broker: Broker) -> None:
    await broker.create("t")
    everything = await describe(broker, TOPIC, "t")
    assert len(everything.configs) > 30
    assert len((await describe(broker, TOPIC, "t", [])).configs) == len(everything.configs)
    assert (await describe(broker, TOPIC, "t", ["no.such"])).configs == []


@pytest.mark.parametrize(
    ("kind", "name", "keys"),
    [
        (TOPIC, "t", ["retention.ms", "compression.type", "cleanup.policy"]),
        (BROKER, "7", ["num.partitions", "default.replication.factor"]),
        (BROKER, "7", None),
        (TOPIC, "t", None),
        (GROUP, "g", None),
    ],
)
async def test_configs_come_in_the_order_of_their_names(
    broker: Broker, kind: int, name: str, keys: list[str] | None
) -> None:
    """Tests of kafkajs read them by index; those of @platformatic/kafka compare lists."""
    await broker.create("t")
    answer = await describe(broker, kind, name, keys)
    found = [row.name for row in answer.configs]
    assert found and found == sorted(keys or found)


async def test_synonyms_and_documentation_are_returned_on_request(broker: Broker) -> None:
    await broker.create("t", retention_ms="1000")
    plain = (await describe(broker, TOPIC, "t", ["retention.ms"])).configs[0]
    assert (plain.synonyms, plain.documentation) == ([], None)
    wishes = {"include_synonyms": True, "include_documentation": True}
    full = (await describe(broker, TOPIC, "t", ["retention.ms"], **wishes)).configs[0]
    assert [(row.name, row.value, row.source) for row in full.synonyms] == [
        ("retention.ms", "1000", Source.DYNAMIC_TOPIC),
        ("log.retention.hours", "168", Source.DEFAULT),
    ]
    assert full.documentation.startswith("How long records are kept")


async def test_what_is_fixed_at_creation_is_read_only(broker: Broker) -> None:
    await broker.create("t")
    answer = await describe(broker, TOPIC, "t", ["offset.mode", "retention.ms"])
    assert {row.name: row.read_only for row in answer.configs} == {
        "offset.mode": True,
        "retention.ms": False,
    }


async def test_every_config_of_every_kind_has_a_type_and_a_sentence(broker: Broker) -> None:
    await broker.create("t")
    for kind, name in ((TOPIC, "t"), (BROKER, "7"), (GROUP, "g")):
        answer = await describe(broker, kind, name, include_documentation=True)
        assert answer.error_code == E.NONE
        assert answer.configs
        for row in answer.configs:
            assert row.config_type in list(Kind)
            assert row.documentation


async def test_configs_that_are_fixed_here_have_kafkas_types_all_the_same(broker: Broker) -> None:
    await broker.create("t")
    found = {
        row.name: row.config_type
        for kind, name in ((TOPIC, "t"), (BROKER, "7"))
        for row in (await describe(broker, kind, name)).configs
    }
    assert found["remote.storage.enable"] == Kind.BOOLEAN
    assert found["broker.id"] == found["node.id"] == Kind.INT
    assert found["advertised.listeners"] == Kind.LIST
    assert found["offsets.retention.check.interval.ms"] == Kind.LONG


async def test_the_defaults_of_all_brokers_are_what_was_changed(broker: Broker) -> None:
    assert (await describe(broker, BROKER, "")).configs == []
    node = broker.services
    stored = b'{"log.retention.ms":"5"}'
    await node.store.command("HSET", node.keys.configs(), "broker:", stored, ":version", "1")
    (row,) = (await describe(broker, BROKER, "")).configs
    assert (row.name, row.value) == ("log.retention.ms", "5")
    assert row.config_source == Source.DYNAMIC_DEFAULT_BROKER
    own = b'{"log.retention.ms":"6"}'
    await node.store.command("HSET", node.keys.configs(), "broker:7", own, ":version", "2")
    assert (await describe(broker, BROKER, "")).configs == [row]


async def test_the_one_logger_shows_its_level(broker: Broker) -> None:
    (row,) = (await describe(broker, LOGGER, "7")).configs
    assert (row.name, row.value, row.read_only) == ("korvet", "INFO", True)


async def test_resources_are_listed_by_kind(broker: Broker) -> None:
    async def listed(*kinds: int, version: int = 1) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        answer = await broker.ask(request, version)
        assert answer.error_code == E.NONE
        return [(row.resource_type, row.resource_name) for row in answer.config_resources]

    await broker.create("t")
    node = broker.services
    stored = b'{"consumer.session.timeout.ms":"50000"}'
    await node.store.command("HSET", node.keys.configs(), "group:a%3Ab", stored, ":version", "1")
    assert await listed(TOPIC) == [(TOPIC, "t")]
    assert await listed(BROKER, LOGGER) == [(BROKER, "7"), (LOGGER, "7")]
    assert await listed(GROUP) == [(GROUP, "a:b")]
    assert await listed(METRICS) == []
    assert len(await listed()) == 4
    assert await listed(version=0) == []


async def test_an_unknown_resource_type_cannot_be_listed(broker: Broker) -> None:
    answer = await broker.ask(ListConfigResourcesRequest(resource_types=[2, 99]))
    assert (answer.error_code, answer.config_resources) == (E.UNSUPPORTED_VERSION, [])


async def test_a_broker_returns_its_listeners_and_ids_as_read_only(
    broker: Broker,
) -> None:
    wanted = {
        "advertised.listeners": "PLAINTEXT://me:9092",
        "broker.id": "7",
        "node.id": "7",
    }
    rows = (await describe(broker, BROKER, "7", list(wanted))).configs
    assert {row.name: row.value for row in rows} == wanted
    assert {(row.read_only, row.config_source) for row in rows} == {(True, Source.STATIC_BROKER)}
    everything = (await describe(broker, BROKER, "7")).configs
    assert wanted.keys() <= {row.name for row in everything}
    assert [row.name for row in (await describe(broker, BROKER, "")).configs] == []
