"""Check CreateTopics. The codes are Apache Kafka 4.3.0's for the same requests, except as noted."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.scripts.call import Call
from korvet.store.errors import StoreRefused
from korvet.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    configs: dict[str, str | None] | None = None,
    places: list[tuple[int, list[int]]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
            for number, ids in places or []
        ],
    )


async def create(
    broker: Broker, *topics: CreatableTopic, validate: bool = False, version: int = 7
) -> list[Any]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate)
    return list((await broker.ask(request, version)).topics)


UNKNOWN: dict[str, str | None] = {"no.such": "1"}

REFUSED = [
    (topic("t"), E.TOPIC_ALREADY_EXISTS),
    (topic("t", 0), E.TOPIC_ALREADY_EXISTS),
    (topic("t", configs=UNKNOWN), E.TOPIC_ALREADY_EXISTS),
    (topic(""), E.INVALID_TOPIC_EXCEPTION),
    (topic("."), E.INVALID_TOPIC_EXCEPTION),
    (topic(".."), E.INVALID_TOPIC_EXCEPTION),
    (topic("x" * 250), E.INVALID_TOPIC_EXCEPTION),
    (topic("a b"), E.INVALID_TOPIC_EXCEPTION),
    (topic("__ours"), E.INVALID_TOPIC_EXCEPTION),  # Kafka lets clients create such names
    (topic("n", 0), E.INVALID_PARTITIONS),
    (topic("n", -2), E.INVALID_PARTITIONS),
    (topic("n", 100_001), E.POLICY_VIOLATION),
    (topic("n", 0, 3), E.INVALID_PARTITIONS),
    (topic("n", 1, 0), E.INVALID_REPLICATION_FACTOR),
    (topic("n", 1, -2), E.INVALID_REPLICATION_FACTOR),
    (topic("n", 0, 0), E.INVALID_REPLICATION_FACTOR),
    (topic("n", configs=UNKNOWN), E.INVALID_CONFIG),
    (topic("n", 0, configs=UNKNOWN), E.INVALID_CONFIG),
    (topic("n", configs={"retention.ms": "soon"}), E.INVALID_CONFIG),
    (topic("n", configs={"retention.ms": None}), E.INVALID_CONFIG),
    (topic("n", 2, -1, places=[(0, [7])]), E.INVALID_REQUEST),
    (topic("n", -1, 1, places=[(0, [7])]), E.INVALID_REQUEST),
    (topic("n", -1, -1, places=[(0, [7]), (2, [7])]), E.INVALID_REPLICA_ASSIGNMENT),
    (topic("n", -1, -1, places=[(1, [7])]), E.INVALID_REPLICA_ASSIGNMENT),
    (topic("n", -1, -1, places=[(0, [7]), (0, [7])]), E.INVALID_REPLICA_ASSIGNMENT),
    (topic("n", -1, -1, places=[(0, [9])]), E.INVALID_REPLICA_ASSIGNMENT),
    (topic("n", -1, -1, places=[(0, [7, 7])]), E.INVALID_REPLICA_ASSIGNMENT),
    (topic("n", -1, -1, places=[(0, [])]), E.INVALID_REPLICA_ASSIGNMENT),
]


async def test_what_cannot_be_is_refused_in_kafkas_order_and_nothing_is_made(
    broker: Broker,
) -> None:
    await broker.create("t")
    for number, (wanted, error) in enumerate(REFUSED):
        for validate in (True, False):
            (answer,) = await create(broker, wanted, validate=validate)
            assert E(answer.error_code) is error, f"row {number}: {answer.error_message}"
            assert answer.error_message
    assert [known.name for known in await broker.services.topics.all()] == ["t"]


@pytest.mark.parametrize("version", range(8))
async def test_a_topic_is_made_in_every_version(broker: Broker, version: int) -> None:
    (answer,) = await create(broker, topic("n", 3), version=version)
    assert answer.error_code == E.NONE
    made = await broker.services.topics.get("n")
    assert made is not None and made.partitions == 3
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        assert {row.name for row in answer.configs} >= {"retention.ms", "storage.format"}
    if version >= 7:
        assert answer.topic_id == made.uuid


async def test_a_topic_named_twice_is_refused_and_the_others_are_made(broker: Broker) -> None:
    answers = await create(broker, topic("a"), topic("b"), topic("a", 2))
    assert {row.name: row.error_code for row in answers} == {"a": E.INVALID_REQUEST, "b": E.NONE}
    assert await broker.services.topics.get("a") is None


async def test_reserved_names_are_allowed_only_by_the_setting(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    name = "__debezium-heartbeat.orders"
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    assert (await broker.ask(asked)).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    (line,) = caplog.records
    assert name in str(vars(line)) and "reserved.topic.names.enable" in str(vars(line))
    internal = MetadataRequest(topics=[MetadataRequestTopic(name="__transaction_state")])
    assert (await broker.ask(internal)).topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert len(caplog.records) == 1
    (refused,) = await create(broker, topic(name))
    assert "reserved.topic.names.enable" in (refused.error_message or "")
    allowed = AlterableConfig(name="reserved.topic.names.enable", config_operation=0, value="true")
    everybody = AlterConfigsResource(resource_type=4, resource_name="", configs=[allowed])
    change = IncrementalAlterConfigsRequest(resources=[everybody], validate_only=False)
    changed = await broker.ask(change)
    assert changed.responses[0].error_code == E.NONE
    assert (await broker.ask(asked)).topics[0].error_code == E.NONE
    await broker.create("__CruiseControlMetrics")
    names = {topic.name for topic in await broker.services.topics.all()}
    assert names == {name, "__CruiseControlMetrics"}


async def test_minus_one_is_the_brokers_default(broker: Broker) -> None:
    (answer,) = await create(broker, topic("n", -1, -1))
    assert (answer.error_code, answer.num_partitions) == (E.NONE, 1)


async def test_any_replication_factor_is_taken_and_one_is_reported(broker: Broker) -> None:
    (answer,) = await create(broker, topic("n", 1, 3))
    assert (answer.error_code, answer.replication_factor) == (E.NONE, 1)


async def test_an_assignment_counts_the_partitions(broker: Broker) -> None:
    (answer,) = await create(broker, topic("n", -1, -1, places=[(1, [7]), (0, [7])]))
    assert (answer.error_code, answer.num_partitions) == (E.NONE, 2)


async def test_validation_makes_nothing(broker: Broker) -> None:
    (answer,) = await create(broker, topic("n", 3), validate=True)
    assert (answer.error_code, answer.num_partitions) == (E.NONE, 3)
    assert await broker.services.topics.get("n") is None


async def test_what_is_fixed_at_creation_is_written_down(broker: Broker) -> None:
    await create(broker, topic("n", configs={"offset.mode": "dense", "storage.format": "batch"}))
    made = await broker.services.topics.get("n")
    assert made is not None
    assert made.configs == {
        "offset.bits": "10",
        "offset.mode": "dense",
        "storage.format": "batch",
    }


async def test_a_redis_failure_is_returned_for_the_topics_that_were_not_created(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, store = broker.services.store.run, broker.services.store

    async def run(call: Call[Any]) -> Any:
        if call.args[0] == "b":
            raise StoreRefused("OOM command not allowed when used memory > 'maxmemory'.")
        return await real(call)

    monkeypatch.setattr(store, "run", run)
    made, refused, later = await create(broker, topic("a"), topic("b"), topic("c"))
    assert (made.error_code, later.error_code) == (E.NONE, E.NONE)
    assert (refused.name, refused.error_code) == ("b", E.REQUEST_TIMED_OUT)
    assert refused.error_message.startswith("OOM")


async def test_topics_differ_by_more_than_dots_and_underscores(broker: Broker) -> None:
    await broker.create("a.b_c")
    for validate in (True, False):
        (answer,) = await create(broker, topic("a_b.c"), validate=validate)
        assert answer.error_code == E.INVALID_TOPIC_EXCEPTION
        assert answer.error_message == "Topic 'a_b.c' collides with existing topic: a.b_c"
    (answer,) = await create(broker, topic("a.b_c"))
    assert answer.error_code == E.TOPIC_ALREADY_EXISTS
    for name in ("a-b-c", "ab_c", "a.b_c."):
        assert (await create(broker, topic(name)))[0].error_code == E.NONE


async def test_a_request_makes_so_many_partitions_and_no_more(broker: Broker) -> None:
    answers = await create(broker, topic("a", 5000), topic("b", 5001), topic("c"), validate=True)
    assert [row.error_code for row in answers] == [E.POLICY_VIOLATION] * 3
    answers = await create(broker, topic("a", 5000), topic("b", 5000), validate=True)
    assert [row.error_code for row in answers] == [E.NONE] * 2
    answers = await create(broker, topic("a", 6000), topic("a", 6000), topic("b"), validate=True)
    assert [row.error_code for row in answers] == [E.INVALID_REQUEST, E.NONE]


@pytest.mark.parametrize(
    ("configs", "is_created"),
    [
        ({}, True),
        ({"offset.mode": "dense"}, False),
        ({"storage.format": "batch"}, False),
        ({"offset.mode": "bytes"}, False),
    ],
)
async def test_entries_of_another_program_are_the_first_records_or_a_reason(
    broker: Broker, configs: dict[str, str | None], is_created: bool
) -> None:
    """A dense topic hid them: their memory was used for good."""
    store, stream = broker.services.store, broker.services.keys.partition("t", 1).stream
    raw = await store.command("XADD", stream, "*", "value", "native")
    wanted = topic("t", 2, configs=configs)
    row = (await create(broker, wanted))[0]
    if is_created:
        assert row.error_code == E.NONE
        milliseconds = int(raw.partition(b"-")[0])
        assert (await fetch(broker, milliseconds << 10, number=1)).high_watermark > milliseconds
        return
    assert row.error_code == E.INVALID_REQUEST
    assert f"Redis has a stream {stream} with 1 entries" in row.error_message
    assert await store.command("XLEN", stream) == 1
    await store.command("DEL", stream)
    assert (await create(broker, wanted))[0].error_code == E.NONE


@pytest.mark.parametrize("part", ["stream", "log"])
async def test_a_key_of_another_type_is_a_reason(broker: Broker, part: str) -> None:
    key = getattr(broker.services.keys.partition("t", 0), part)
    await broker.services.store.command("SET", key, "other")
    row = (await create(broker, topic("t", 1)))[0]
    assert row.error_code == E.INVALID_REQUEST
    assert row.error_message.startswith(f"Redis has a key {key} of another type")
