"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs of absent or invalid resources."""

from typing import Any

from korvet.wire.messages import alter_configs as old
from korvet.wire.messages import incremental_alter_configs as new
from korvet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.conformance.asking import ABSENT, COMPACTED, TOPIC, Ask, case

TOPICS, BROKERS, LOGGERS, METRICS, GROUPS = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

NAMES = (
    (0, TOPIC),
    (1, TOPIC),
    (3, TOPIC),
    (64, TOPIC),
    (TOPICS, ABSENT),
    (TOPICS, ""),
    (TOPICS, "not legal"),
    (TOPICS, "x" * 250),
    (BROKERS, "991"),
    (BROKERS, "one"),
    (BROKERS, "-1"),
    (GROUPS, ""),
)
"""Resources that do not exist."""

BAD = (
    ("bogus", "1"),
    ("", "1"),
    ("retention.ms", "soon"),
    ("retention.ms", "-2"),
    ("retention.ms", ""),
    ("retention.ms", None),
    ("retention.ms", "9223372036854775808"),
    ("cleanup.policy", "shrink"),
    ("cleanup.policy", ""),
    ("cleanup.policy", "delete,shrink"),
    ("max.message.bytes", "-1"),
    ("min.insync.replicas", "0"),
    ("compression.type", "rar"),
    ("message.timestamp.type", "Whenever"),
    ("min.cleanable.dirty.ratio", "2"),
    ("segment.bytes", "1"),
    ("preallocate", "maybe"),
    ("unclean.leader.election.enable", "maybe"),
)
"""Unknown topic configs and invalid values."""

GROUP_BAD = (
    ("bogus", "1"),
    ("consumer.session.timeout.ms", "1"),
    ("consumer.session.timeout.ms", "soon"),
    ("consumer.session.timeout.ms", "9999999"),
    ("consumer.heartbeat.interval.ms", "1"),
    ("consumer.heartbeat.interval.ms", "9999999"),
    ("consumer.session.timeout.ms", None),
)

BROKER_BAD = (
    ("bogus.setting", "1"),
    ("log.retention.ms", "soon"),
    ("log.retention.ms", None),
    ("socket.request.max.bytes", "100000000"),
    ("log.cleanup.policy", "shrink"),
)


def replacing(kind: int, name: str, *configs: tuple[str, str | None], check: bool = False) -> Any:
    rows = [old.AlterableConfig(name=config, value=value) for config, value in configs]
    resource = old.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    return old.AlterConfigsRequest(resources=[resource], validate_only=check)


def changing(
    kind: int, name: str, *configs: tuple[str, int, str | None], check: bool = False
) -> Any:
    rows = [
        new.AlterableConfig(name=config, config_operation=operation, value=value)
        for config, operation, value in configs
    ]
    resource = new.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    return new.IncrementalAlterConfigsRequest(resources=[resource], validate_only=check)


@case("AlterConfigs")
async def configs_of_unknown_resources(ask: Ask) -> Any:
    return [await ask(replacing(kind, name, ("retention.ms", "1"))) for kind, name in NAMES]


@case("AlterConfigs")
async def configs_that_cannot_be(ask: Ask) -> Any:
    return [await ask(replacing(TOPICS, TOPIC, pair, check=True)) for pair in BAD]


@case("AlterConfigs")
async def configs_named_twice(ask: Ask) -> Any:
    pairs = (("retention.ms", "5"), ("retention.ms", "6"))
    return await ask(replacing(TOPICS, TOPIC, *pairs, check=True))


@case("AlterConfigs")
async def a_resource_named_twice(ask: Ask) -> Any:
    row = replacing(TOPICS, TOPIC, ("retention.ms", "5")).resources[0]
    return await ask(old.AlterConfigsRequest(resources=[row, row], validate_only=True))


@case("AlterConfigs")
async def configs_of_nothing(ask: Ask) -> Any:
    return [
        await ask(old.AlterConfigsRequest(resources=[], validate_only=True)),
        await ask(replacing(TOPICS, TOPIC, check=True)),
    ]


@case("AlterConfigs")
async def group_configs_that_cannot_be(ask: Ask) -> Any:
    return [await ask(replacing(GROUPS, ask.group, pair, check=True)) for pair in GROUP_BAD]


@case("AlterConfigs")
async def broker_configs_that_cannot_be(ask: Ask) -> Any:
    return [await ask(replacing(BROKERS, "", pair, check=True)) for pair in BROKER_BAD]


@case("AlterConfigs")
async def configs_of_absent_topics_that_cannot_be(ask: Ask) -> Any:
    return [
        await ask(replacing(TOPICS, name, pair, check=True))
        for name in (ABSENT, "not legal", "")
        for pair in BAD[:3]
    ]


@case("IncrementalAlterConfigs")
async def changes_of_absent_topics_that_cannot_be(ask: Ask) -> Any:
    return [
        await ask(changing(TOPICS, name, row, check=True))
        for name in (ABSENT, "not legal", "")
        for row in (
            ("bogus", SET, "1"),
            ("retention.ms", SET, "soon"),
            ("retention.ms", APPEND, "5"),
            ("bogus", SUBTRACT, "5"),
            ("cleanup.policy", APPEND, "compact"),
            ("bogus", DELETE, None),
        )
    ]


@case("IncrementalAlterConfigs")
async def lists_of_groups_without_a_name(ask: Ask) -> Any:
    return [
        await ask(changing(GROUPS, "", (name, operation, "5"), check=True))
        for name in ("consumer.session.timeout.ms", "bogus")
        for operation in (APPEND, SUBTRACT, SET)
    ]


@case("IncrementalAlterConfigs")
async def changes_of_unknown_resources(ask: Ask) -> Any:
    return [await ask(changing(kind, name, ("retention.ms", SET, "1"))) for kind, name in NAMES]


@case("IncrementalAlterConfigs")
async def changes_that_cannot_be(ask: Ask) -> Any:
    return [
        await ask(changing(TOPICS, TOPIC, (name, SET, value), check=True)) for name, value in BAD
    ]


@case("IncrementalAlterConfigs")
async def changes_named_twice(ask: Ask) -> Any:
    row = changing(TOPICS, TOPIC, ("retention.ms", SET, "5")).resources[0]
    pair = (("retention.ms", SET, "5"), ("retention.ms", DELETE, None))
    return [
        await ask(changing(TOPICS, TOPIC, *pair, check=True)),
        await ask(new.IncrementalAlterConfigsRequest(resources=[row, row], validate_only=True)),
        await ask(new.IncrementalAlterConfigsRequest(resources=[], validate_only=True)),
        await ask(changing(TOPICS, TOPIC, check=True)),
    ]


@case("IncrementalAlterConfigs")
async def operations_that_make_no_sense(ask: Ask) -> Any:
    return [
        await ask(changing(TOPICS, TOPIC, row, check=True))
        for row in (
            ("retention.ms", 4, "5"),
            ("retention.ms", -1, "5"),
            ("retention.ms", APPEND, "5"),
            ("retention.ms", SUBTRACT, "5"),
            ("bogus", APPEND, "5"),
            ("bogus", DELETE, None),
            ("retention.ms", DELETE, "5"),
            ("cleanup.policy", APPEND, None),
            ("cleanup.policy", APPEND, "shrink"),
            ("cleanup.policy", APPEND, "delete"),
            ("cleanup.policy", APPEND, "compact"),
            ("cleanup.policy", SUBTRACT, "compact"),
            ("cleanup.policy", SUBTRACT, "delete"),
            ("cleanup.policy", SUBTRACT, "shrink"),
        )
    ]


@case("IncrementalAlterConfigs")
async def lists_that_name_a_word_twice(ask: Ask) -> Any:
    return [
        await ask(changing(TOPICS, TOPIC, ("cleanup.policy", SET, value), check=True))
        for value in ("compact,compact", " compact , delete,compact ", "delete,,compact", "delete,")
    ]


@case("IncrementalAlterConfigs")
async def changes_of_groups_that_cannot_be(ask: Ask) -> Any:
    return [
        await ask(changing(GROUPS, ask.group, (name, SET, value), check=True))
        for name, value in GROUP_BAD
    ]


@case("IncrementalAlterConfigs")
async def changes_of_brokers_that_cannot_be(ask: Ask) -> Any:
    return [
        await ask(changing(BROKERS, "", (name, SET, value), check=True))
        for name, value in BROKER_BAD
    ]


def describing(*rows: tuple[int, str], keys: list[str] | None = None) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in rows
        ]
    )


async def described(ask: Ask, request: DescribeConfigsRequest) -> Any:
    answer = await ask(request)
    return [
        (
            row.error_code,
            row.error_message is not None,
            row.resource_type,
            row.resource_name,
            sorted(config.name for config in row.configs) if len(row.configs) < 3 else "many",
        )
        for row in answer.results
    ]


@case("DescribeConfigs")
async def configs_described_of_unknown_resources(ask: Ask) -> Any:
    return [await described(ask, describing(name)) for name in NAMES]


@case("DescribeConfigs")
async def unknown_configs_described(ask: Ask) -> Any:
    return [
        await described(ask, describing((TOPICS, TOPIC), keys=["retention.ms", "bogus"])),
        await described(ask, describing((TOPICS, TOPIC), keys=[])),
        await described(ask, describing((GROUPS, ask.group), keys=["bogus"])),
        await described(ask, describing((TOPICS, TOPIC), (TOPICS, TOPIC), keys=["retention.ms"])),
        await described(ask, describing((TOPICS, COMPACTED), keys=["cleanup.policy"])),
        await described(ask, describing()),
    ]
