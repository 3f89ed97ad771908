"""Check CreatePartitions, with the codes of Apache Kafka 4.3.0."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.support.connected_broker import Broker

Wanted = tuple[str, int, list[list[int]] | None]


async def grow(
    broker: Broker, *wanted: Wanted, validate: bool = False, version: int = 3
) -> list[Any]:
    topics = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if places is None
            else [CreatePartitionsAssignment(broker_ids=ids) for ids in places],
        )
        for name, count, places in wanted
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=validate)
    return list((await broker.ask(request, version)).results)


async def partitions(broker: Broker) -> int:
    topic = await broker.services.topics.get("t")
    assert topic is not None
    return topic.partitions


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (("t", 2, None), E.INVALID_PARTITIONS),
        (("t", 1, None), E.INVALID_PARTITIONS),
        (("t", 0, None), E.INVALID_PARTITIONS),
        (("t", -1, None), E.INVALID_PARTITIONS),
        (("t", 10_001, None), E.POLICY_VIOLATION),
        (("absent", 3, None), E.UNKNOWN_TOPIC_OR_PARTITION),
        (("a b", 3, None), E.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 4, [[7]]), E.INVALID_REPLICA_ASSIGNMENT),
        (("t", 3, []), E.INVALID_REPLICA_ASSIGNMENT),
        (("t", 3, [[]]), E.INVALID_REPLICA_ASSIGNMENT),
        (("t", 3, [[9]]), E.INVALID_REPLICA_ASSIGNMENT),
        (("t", 3, [[7, 7]]), E.INVALID_REPLICA_ASSIGNMENT),
        (("t", 3, [[7], [7]]), E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_what_cannot_be_is_refused(broker: Broker, wanted: Wanted, error: E) -> None:
    await broker.create("t", 2)
    for validate in (True, False):
        (answer,) = await grow(broker, wanted, validate=validate)
        assert E(answer.error_code) is error
        assert answer.error_message
    assert await partitions(broker) == 2


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_grows(broker: Broker, version: int) -> None:
    await broker.create("t", 2)
    (answer,) = await grow(broker, ("t", 5, None), version=version)
    assert (answer.error_code, await partitions(broker)) == (E.NONE, 5)
    (answer,) = await grow(broker, ("t", 6, [[7]]), version=version)
    assert (answer.error_code, await partitions(broker)) == (E.NONE, 6)


async def test_validation_adds_nothing(broker: Broker) -> None:
    await broker.create("t", 2)
    (answer,) = await grow(broker, ("t", 5, None), validate=True)
    assert (answer.error_code, await partitions(broker)) == (E.NONE, 2)


async def test_a_topic_named_twice_stays_as_it_is(broker: Broker) -> None:
    await broker.create("t", 2)
    (answer,) = await grow(broker, ("t", 3, None), ("t", 4, None))
    assert (answer.error_code, await partitions(broker)) == (E.INVALID_REQUEST, 2)


async def test_what_another_broker_did_meanwhile_is_seen(broker: Broker) -> None:
    """The broker's cached definition is old: it reads the topic and decides again."""
    await broker.create("t", 2)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    newer = topic.raw.replace(b'"partitions":2', b'"partitions":4')
    call = broker.services.keys.topic_alter(topic="t", expected=topic.raw, definition=newer)
    assert (await broker.services.store.run(call)).error == E.NONE
    (answer,) = await grow(broker, ("t", 3, None))
    assert answer.error_code == E.INVALID_PARTITIONS
    (answer,) = await grow(broker, ("t", 6, None))
    assert (answer.error_code, await partitions(broker)) == (E.NONE, 6)
