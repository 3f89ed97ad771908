"""Check DeleteTopics, with the codes of Apache Kafka 4.3.0."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics import lifecycle
from korvet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from korvet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from korvet.wire.schema import ZERO_UUID
from tests.support.connected_broker import Broker


async def delete(broker: Broker, *states: tuple[str | None, UUID]) -> list[Any]:
    rows = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    return list((await broker.ask(DeleteTopicsRequest(topics=rows, timeout_ms=1000))).responses)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (("absent", ZERO_UUID), E.UNKNOWN_TOPIC_OR_PARTITION),
        (("a b", ZERO_UUID), E.UNKNOWN_TOPIC_OR_PARTITION),
        ((None, uuid4()), E.UNKNOWN_TOPIC_ID),
        ((None, ZERO_UUID), E.INVALID_REQUEST),
        (("t", uuid4()), E.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_deleted_is_refused(
    broker: Broker, state: tuple[str | None, UUID], error: E
) -> None:
    await broker.create("t")
    (answer,) = await delete(broker, state)
    assert E(answer.error_code) is error
    assert await broker.services.topics.get("t") is not None


@pytest.mark.parametrize("version", range(6))
async def test_topics_are_deleted_by_name(broker: Broker, version: int) -> None:
    await broker.create("t")
    answer = await broker.ask(
        DeleteTopicsRequest(topic_names=["t", "absent"], timeout_ms=1000), version
    )
    assert {row.name: row.error_code for row in answer.responses} == {
        "t": E.NONE,
        "absent": E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await broker.services.topics.get("t") is None


async def test_a_topic_is_deleted_by_its_id_and_leaves_no_key(broker: Broker) -> None:
    await broker.create("t")
    topic = await broker.services.topics.get("t")
    assert topic is not None
    (answer,) = await delete(broker, (None, topic.uuid))
    assert (answer.name, answer.error_code) == ("t", E.NONE)
    keys = await broker.services.store.command("KEYS", f"*{broker.services.keys.namespace}:t:*")
    assert keys == []


async def test_a_topic_given_twice_stays(broker: Broker) -> None:
    await broker.create("t")
    topic = await broker.services.topics.get("t")
    assert topic is not None
    for states in (
        [("t", ZERO_UUID), ("t", ZERO_UUID)],
        [(None, topic.uuid), (None, topic.uuid)],
    ):
        (answer,) = await delete(broker, *states)  # type: ignore[arg-type]
        assert answer.error_code == E.INVALID_REQUEST
    answers = await delete(broker, ("t", ZERO_UUID), (None, topic.uuid))
    assert E.INVALID_REQUEST in [row.error_code for row in answers]


@pytest.mark.parametrize(
    ("version", "error"), [(2, E.INVALID_REQUEST), (5, E.TOPIC_DELETION_DISABLED)]
)
async def test_a_broker_may_forbid_deletion(broker: Broker, version: int, error: E) -> None:
    await broker.create("t")
    broker.services.dynamic_config.settings = broker.services.settings.with_dynamic(
        {"delete.topic.enable": "false"}
    )
    answer = await broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), version)
    assert E(answer.responses[0].error_code) is error


async def test_a_topic_of_many_partitions_is_created_grown_and_deleted_in_steps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 partitions, or 100,000 groups with their offsets, in one call took Redis about 1 s."""
    most, run = 0, AsyncStore.run

    async def watched(store: AsyncStore, call: Any) -> Any:
        nonlocal most
        most = max(most, len(call.keys))
        return await run(store, call)

    monkeypatch.setattr(lifecycle, "AT_ONCE", 4)
    monkeypatch.setattr(AsyncStore, "run", watched)
    await broker.create("t", 5)
    grown = CreatePartitionsTopic(name="t", count=12, assignments=None)
    request = CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False)
    assert (await broker.ask(request)).results[0].error_code == E.NONE
    topic = await broker.services.topics.get("t")
    assert topic is not None and topic.partitions == 12
    (answer,) = await delete(broker, ("t", ZERO_UUID))
    assert answer.error_code == E.NONE
    assert most < 9
    assert (
        await broker.services.store.command("KEYS", f"*{broker.services.keys.namespace}:t:*") == []
    )


async def test_a_topic_with_commits_of_many_groups_is_deleted_in_steps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t")
    store, keys = broker.services.store, broker.services.keys
    field = keys.partition("t", 0).stream
    groups = [f"g{number}" for number in range(6)]
    for group in groups:
        await store.command("HSET", keys.groups(), group, 1)
        await store.command("HSET", keys.group_offsets(group), field, 5, "other", 6)
    monkeypatch.setattr(lifecycle, "GROUPS_AT_ONCE", 5)
    monkeypatch.setattr(Keys, "topic_delete", None)
    (answer,) = await delete(broker, ("t", ZERO_UUID))
    assert answer.error_code == E.NONE
    for group in groups:
        assert await store.command("HKEYS", keys.group_offsets(group)) == [b"other"]
