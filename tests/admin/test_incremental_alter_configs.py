"""Check IncrementalAlterConfigs, AlterConfigs and AlterReplicaLogDirs, with the codes of Kafka."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.wire.messages import alter_configs as whole
from korvet.wire.messages import incremental_alter_configs as single
from korvet.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
)
from korvet.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from korvet.wire.structs import NamedPartitions
from tests.support.connected_broker import Broker

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Edit = tuple[str, int, str | None]
Resource = tuple[int, str, list[Edit]]


async def change(
    broker: Broker, *resources: Resource, validate: bool = False, version: int = 1
) -> list[Any]:
    rows = [
        single.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                single.AlterableConfig(name=config, config_operation=operation, value=value)
                for config, operation, value in edits
            ],
        )
        for kind, name, edits in resources
    ]
    request = single.IncrementalAlterConfigsRequest(resources=rows, validate_only=validate)
    return list((await broker.ask(request, version)).responses)


async def replace(
    broker: Broker, kind: int, name: str, version: int = 2, **configs: str | None
) -> Any:
    row = whole.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            whole.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    request = whole.AlterConfigsRequest(resources=[row], validate_only=False)
    return (await broker.ask(request, version)).responses[0]


async def configs(broker: Broker, name: str = "t") -> dict[str, str]:
    topic = await broker.services.topics.get(name)
    assert topic is not None
    return {
        key: value
        for key, value in topic.configs.items()
        if key not in ("offset.bits", "offset.mode", "storage.format")
    }


REFUSED: list[tuple[Resource, E]] = [
    ((TOPIC, "t", [("no.such", SET, "1")]), E.INVALID_CONFIG),
    ((TOPIC, "t", [("retention.ms", SET, "soon")]), E.INVALID_CONFIG),
    ((TOPIC, "t", [("retention.ms", SET, None)]), E.INVALID_REQUEST),
    ((TOPIC, "t", [("retention.ms", APPEND, "1")]), E.INVALID_CONFIG),
    ((TOPIC, "t", [("retention.ms", SUBTRACT, "1")]), E.INVALID_CONFIG),
    ((TOPIC, "t", [("retention.ms", 9, "1")]), E.INVALID_REQUEST),  # Kafka: UNKNOWN_SERVER_ERROR
    ((TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]), E.INVALID_REQUEST),
    ((TOPIC, "t", [("storage.format", SET, "batch")]), E.INVALID_CONFIG),
    ((TOPIC, "t", [("offset.mode", DELETE, None)]), E.INVALID_CONFIG),
    ((TOPIC, "absent", [("retention.ms", SET, "1")]), E.UNKNOWN_TOPIC_OR_PARTITION),
    ((TOPIC, "a b", [("retention.ms", SET, "1")]), E.INVALID_TOPIC_EXCEPTION),
    ((TOPIC, "", [("retention.ms", SET, "1")]), E.INVALID_REQUEST),
    ((BROKER, "9", [("log.retention.ms", SET, "1")]), E.INVALID_REQUEST),
    ((BROKER, "x", [("log.retention.ms", SET, "1")]), E.INVALID_REQUEST),
    ((BROKER, "7", [("broker.rack", SET, "1")]), E.INVALID_REQUEST),
    ((BROKER, "", [("log.retention.ms", SET, "soon")]), E.INVALID_REQUEST),
    ((BROKER, "7", [("no.such", SET, "1")]), E.INVALID_CONFIG),  # Kafka accepts it
    ((LOGGER, "7", [("korvet", SET, "INFO")]), E.INVALID_REQUEST),
    ((GROUP, "g", [("consumer.session.timeout.ms", SET, "5")]), E.INVALID_CONFIG),
    ((GROUP, "g", [("no.such", SET, "5")]), E.INVALID_CONFIG),
    ((GROUP, "", [("consumer.session.timeout.ms", SET, "50000")]), E.INVALID_REQUEST),
    ((METRICS, "m", [("interval.ms", SET, "50000")]), E.INVALID_REQUEST),  # Kafka accepts it
    ((0, "x", [("a", SET, "b")]), E.INVALID_REQUEST),
    ((99, "x", [("a", SET, "b")]), E.INVALID_REQUEST),
]


async def test_what_cannot_be_is_refused_and_nothing_changes(broker: Broker) -> None:
    await broker.create("t")
    for number, (resource, error) in enumerate(REFUSED):
        for validate in (True, False):
            (answer,) = await change(broker, resource, validate=validate)
            assert E(answer.error_code) is error, f"row {number}: {answer.error_message}"
            assert (answer.resource_type, answer.resource_name) == resource[:2]
    assert await configs(broker) == {}
    assert await broker.services.store.command("EXISTS", broker.services.keys.configs()) == 0


@pytest.mark.parametrize("version", range(2))
async def test_configs_of_a_topic_are_changed_one_by_one(broker: Broker, version: int) -> None:
    await broker.create("t", retention_ms="1000")
    for edit, after in (
        (("retention.bytes", SET, "5"), {"retention.ms": "1000", "retention.bytes": "5"}),
        (("retention.ms", DELETE, None), {"retention.bytes": "5"}),
        (("segment.ms", DELETE, None), {"retention.bytes": "5"}),
        (("no.such", DELETE, None), {"retention.bytes": "5"}),
        (("retention.bytes", DELETE, None), {}),
        (("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        (("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        (("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
    ):
        (answer,) = await change(broker, (TOPIC, "t", [edit]), version=version)
        assert answer.error_code == E.NONE, answer.error_message
        assert await configs(broker) == after


async def test_a_resource_named_twice_is_refused_both_times(broker: Broker) -> None:
    await broker.create("t")
    edits: list[Edit] = [("retention.ms", SET, "1")]
    answers = await change(broker, (TOPIC, "t", edits), (TOPIC, "t", []))
    assert [row.error_code for row in answers] == [E.INVALID_REQUEST] * 2
    assert await configs(broker) == {}


async def test_one_bad_resource_does_not_stop_the_others(broker: Broker) -> None:
    await broker.create("t")
    edits: list[Edit] = [("retention.ms", SET, "1")]
    answers = await change(broker, (TOPIC, "absent", edits), (TOPIC, "t", edits))
    assert [row.error_code for row in answers] == [E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE]
    assert await configs(broker) == {"retention.ms": "1"}


async def test_validation_changes_nothing(broker: Broker) -> None:
    await broker.create("t")
    for kind, name in ((TOPIC, "t"), (BROKER, ""), (GROUP, "g")):
        config = {
            TOPIC: "retention.ms",
            BROKER: "log.retention.ms",
            GROUP: "consumer.session.timeout.ms",
        }[kind]
        edits: list[Edit] = [(config, SET, "50000")]
        (answer,) = await change(broker, (kind, name, edits), validate=True)
        assert answer.error_code == E.NONE
    assert await configs(broker) == {}
    assert broker.services.configs.groups() == []


async def test_brokers_follow_a_change_and_its_own_wins_over_all_brokers(broker: Broker) -> None:
    def retention() -> str | None:
        return broker.services.settings.text_of("log.retention.ms")

    async def set_to(name: str, operation: int, value: str | None) -> None:
        edits: list[Edit] = [("log.retention.ms", operation, value)]
        (answer,) = await change(broker, (BROKER, name, edits))
        assert answer.error_code == E.NONE, answer.error_message

    await broker.create("t")
    await set_to("", SET, "1000")
    assert retention() == "1000"
    topic = await broker.services.topics.get("t")
    assert topic is not None and topic.policy.retention_ms == 1000
    await set_to("7", SET, "2000")
    assert retention() == "2000"
    await set_to("", DELETE, None)
    assert retention() == "2000"
    await set_to("7", DELETE, None)
    assert retention() is None
    topic = await broker.services.topics.get("t")
    assert topic is not None and topic.policy.retention_ms == 604_800_000


async def test_bounds_that_contradict_each_other_take_no_other_change_along(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    least, most = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    answers = await change(
        broker,
        (BROKER, "", [("log.retention.ms", SET, "-1"), (least, SET, "20000")]),
        (BROKER, "7", [("num.partitions", SET, "5"), (most, SET, "10000")]),
    )
    assert [answer.error_code for answer in answers] == [E.NONE, E.NONE]
    settings = broker.services.settings
    assert settings.text_of("log.retention.ms") == "-1"
    assert settings.integer("num.partitions") == 5
    assert (settings.integer(least), settings.integer(most)) == (6000, 1_800_000)
    assert "contradict" in caplog.text
    await change(broker, (BROKER, "7", [(most, DELETE, None)]))
    assert broker.services.settings.integer(least) == 20000


async def test_a_reassignment_may_be_throttled_and_its_throttles_taken_back(broker: Broker) -> None:
    await broker.create("t")
    rates = (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
    lists = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    for operation, rate, replicas in ((SET, "1000000", "0:7,1:7"), (DELETE, None, None)):
        answers = await change(
            broker,
            (BROKER, "7", [(name, operation, rate) for name in rates]),
            (TOPIC, "t", [(name, operation, replicas) for name in lists]),
        )
        assert [row.error_code for row in answers] == [E.NONE, E.NONE]


async def test_what_tools_change_as_a_matter_of_course_is_taken_and_shown(broker: Broker) -> None:
    wanted = {
        "background.threads": "12",
        "log.cleaner.threads": "2",
        "log.cleaner.io.max.bytes.per.second": "1.0E7",
        "sasl.kerberos.min.time.before.relogin": "58000",
    }
    for operation in (SET, DELETE):
        edits: list[Edit] = [(name, operation, value) for name, value in wanted.items()]
        (answer,) = await change(broker, (BROKER, "7", edits))
        assert answer.error_code == E.NONE, answer.error_message
        if operation == SET:
            assert {name: broker.services.settings.text_of(name) for name in wanted} == wanted
    (answer,) = await change(broker, (BROKER, "7", [("background.threads", SET, "0")]))
    assert answer.error_code == E.INVALID_REQUEST


async def test_a_groups_own_timeout_wins_over_the_brokers(broker: Broker) -> None:
    name = "consumer.session.timeout.ms"

    def timeout(group: str) -> int:
        return int(broker.services.configs.group(group, broker.services.settings)[name].value or "")

    (answer,) = await change(broker, (GROUP, "g", [(name, SET, "50000")]))
    assert answer.error_code == E.NONE
    assert (timeout("g"), timeout("other")) == (50_000, 45_000)


async def test_what_another_version_stored_is_passed_over(broker: Broker) -> None:
    node = broker.services
    stored = b'{"from.the.future":"1","num.partitions":"many","log.retention.ms":"5"}'
    rows = ("broker:", stored, "broker:7", "garbage", ":version", "9")
    await node.store.command("HSET", node.keys.configs(), *rows)
    await node.dynamic_config.refresh()
    assert node.settings.text_of("log.retention.ms") == "5"
    assert node.settings.integer("num.partitions") == 1
    edits: list[Edit] = [("log.retention.bytes", SET, "7")]
    (answer,) = await change(broker, (BROKER, "", edits))
    assert answer.error_code == E.NONE
    kept = await node.store.command("HGET", node.keys.configs(), "broker:")
    assert b"from.the.future" in kept


@pytest.mark.parametrize("version", range(3))
async def test_replacing_all_configs_drops_what_is_not_named_but_what_is_fixed(
    broker: Broker, version: int
) -> None:
    await broker.create("t", retention_ms="1000", offset_mode="dense")
    answer = await replace(broker, TOPIC, "t", version, retention_bytes="5")
    assert answer.error_code == E.NONE
    assert await configs(broker) == {"retention.bytes": "5"}
    topic = await broker.services.topics.get("t")
    assert topic is not None and topic.policy.offset_mode == "dense"
    answer = await replace(broker, TOPIC, "t", version, offset_mode="dense")
    assert answer.error_code == E.NONE
    assert await configs(broker) == {}


@pytest.mark.parametrize(
    ("kind", "name", "wanted", "error"),
    [
        (TOPIC, "t", {"offset_mode": "time"}, E.INVALID_CONFIG),
        (TOPIC, "t", {"retention_ms": None}, E.INVALID_REQUEST),
        (TOPIC, "absent", {}, E.UNKNOWN_TOPIC_OR_PARTITION),
        (LOGGER, "7", {}, E.INVALID_REQUEST),
        (0, "x", {}, E.INVALID_REQUEST),
    ],
)
async def test_a_replacement_that_cannot_be_is_refused(
    broker: Broker, kind: int, name: str, wanted: dict[str, str | None], error: E
) -> None:
    await broker.create("t", retention_ms="1000", offset_mode="dense")
    answer = await replace(broker, kind, name, **wanted)
    assert E(answer.error_code) is error
    assert await configs(broker) == {"retention.ms": "1000"}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_partition_may_be_moved_only_to_its_own_directory(
    broker: Broker, version: int
) -> None:
    await broker.create("t", partitions=2)
    (here,) = (await broker.ask(DescribeLogDirsRequest(topics=None), 4)).results

    async def moved(path: str, name: str, *partitions: int) -> list[tuple[str, int, E]]:
        topic = NamedPartitions(name=name, partitions=list(partitions))
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        return [
            (result.topic_name, row.partition_index, E(row.error_code))
            for result in (await broker.ask(request, version)).results
            for row in result.partitions
        ]

    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert await moved(here.log_dir, "t", 1, 0) == [("t", 1, E.NONE), ("t", 0, E.NONE)]
    assert await moved(here.log_dir, "t", 2, -1) == [("t", 2, unknown), ("t", -1, unknown)]
    assert await moved(here.log_dir, "absent", 0) == [("absent", 0, unknown)]
    assert await moved("/elsewhere", "t", 0) == [("t", 0, E.LOG_DIR_NOT_FOUND)]
    assert await moved("/elsewhere", "absent", 0) == [("absent", 0, E.LOG_DIR_NOT_FOUND)]
