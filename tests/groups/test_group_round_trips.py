"""Check the Redis round trips of groups, large commits, and a broker killed between two calls."""

from typing import Any

import pytest

from korvet.base.bounded import MAX_CONCURRENT
from korvet.base.errors import ErrorCode
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.list_groups import ListGroupsRequest
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.groups.test_classic_groups import commit, joining
from tests.support.connected_broker import Broker


async def listed(broker: Broker) -> list[str]:
    answer = await broker.ask(ListGroupsRequest())
    return [row.group_id for row in answer.groups]


async def make_due(broker: Broker) -> None:
    """Make every scheduled tick due."""
    keys, store = broker.services.keys, broker.services.store
    for name in await store.command("ZRANGE", keys.groups_due(), 0, -2):
        await store.command("ZADD", keys.groups_due(), 1, name)


async def partition_member(broker: Broker) -> tuple[str, int]:
    """Join a KIP-848 member to group `g`; return its id and its epoch."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = await broker.ask(request)
    assert answer.error_code == ErrorCode.NONE
    return "m", answer.member_epoch


@pytest.mark.parametrize("version", [3, 4, 9])
async def test_a_join_into_a_new_group_takes_two_round_trips(broker: Broker, version: int) -> None:
    store = broker.services.store
    before = store.round_trips
    answer = await broker.ask(joining(), version)
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
    assert store.round_trips == before + 2
    assert await listed(broker) == ["g"]


async def test_a_second_join_takes_one_round_trip(broker: Broker) -> None:
    first = await broker.ask(joining(), 4)
    before = broker.services.store.round_trips
    answer = await broker.ask(joining(member_id=first.member_id), 4)
    assert answer.error_code == ErrorCode.NONE
    assert broker.services.store.round_trips == before + 1


async def test_a_commit_of_a_consumer_group_member_is_one_script_call(broker: Broker) -> None:
    await broker.create("t", 1)
    member, epoch = await partition_member(broker)
    calls: list[str] = []
    broker.services.store.on_call = lambda name, seconds, outcome: calls.append(name)
    error = await commit(broker, 9, member_id=member, generation_id_or_member_epoch=epoch)
    broker.services.store.on_call = None
    assert error == ErrorCode.NONE
    assert [name for name in calls if name.startswith("group.")] == ["group.commit"]


@pytest.mark.parametrize(
    ("member", "stale", "error"),
    [
        ("m", 0, ErrorCode.UNSUPPORTED_VERSION),
        ("m", 5, ErrorCode.UNSUPPORTED_VERSION),
        ("absent", 0, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_versions_before_9_commit_nothing_for_consumer_group_members(
    broker: Broker, member: str, stale: int, error: ErrorCode
) -> None:
    await broker.create("t", 1)
    _, epoch = await partition_member(broker)
    answer = await commit(broker, 8, member_id=member, generation_id_or_member_epoch=epoch + stale)
    assert answer == error
    store, offsets = broker.services.store, broker.services.keys.group_offsets("g")
    assert await store.command("EXISTS", offsets) == 0


async def test_a_group_of_a_broker_killed_after_the_registration_is_unregistered(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, store, keys = broker.services.groups, broker.services.store, broker.services.keys
    run_many, calls = AsyncStore.run_many, 0

    async def killed(self: AsyncStore, given: Any) -> list[Any]:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise StoreUnavailable("killed")
        return await run_many(self, given)

    with monkeypatch.context() as patch:
        patch.setattr(AsyncStore, "run_many", killed)
        with pytest.raises(StoreUnavailable):
            await broker.ask(joining(), 3)
    assert await groups.registry.list_all() == ["g"]
    assert await store.command("EXISTS", keys.group("g").group) == 0
    await make_due(broker)
    assert await groups.tick_due() == 1
    assert await groups.registry.list_all() == []
    assert await store.command("ZRANGE", keys.groups_due(), 0, -1) in ([], [b":clock"])


async def test_an_existing_group_that_is_not_registered_is_registered_by_its_tick(
    broker: Broker,
) -> None:
    groups, store, keys = broker.services.groups, broker.services.store, broker.services.keys
    await broker.ask(joining(), 3)
    mark = await store.command("HGET", keys.groups(), "g")
    await store.run(keys.group_unregister(group="g", mark=mark))
    assert await groups.registry.list_all() == []
    await make_due(broker)
    await groups.tick_due()
    assert await groups.registry.list_all() == ["g"]


async def test_a_refused_join_leaves_no_group_after_the_next_tick(broker: Broker) -> None:
    groups = broker.services.groups
    answer = await broker.ask(joining(protocols=[]), 3)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await listed(broker) == []
    await make_due(broker)
    await groups.tick_due()
    assert await groups.registry.list_all() == []


MANY = 2 * MAX_CONCURRENT + 50


async def commit_all(broker: Broker) -> None:
    parts = [
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=number, committed_metadata=None
        )
        for number in range(MANY)
    ]
    topic = OffsetCommitRequestTopic(name="t", partitions=parts)
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    answer = await broker.ask(request, 9)
    assert [row.error_code for row in answer.topics[0].partitions] == [0] * MANY


async def test_a_failed_redis_group_seek_affects_no_other_partition(broker: Broker) -> None:
    await broker.create("t", MANY)
    store, keys = broker.services.store, broker.services.keys
    await store.command("SET", keys.partition("t", 0).stream, "a foreign value")
    last = keys.partition("t", MANY - 1).stream
    await commit_all(broker)
    assert await store.command("XINFO", "GROUPS", last)
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await broker.ask(DeleteGroupsRequest(groups_names=["g"]))
    assert not await store.command("XINFO", "GROUPS", last)


async def test_the_redis_groups_of_a_commit_are_moved_some_at_a_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", MANY)
    node, waiting, most = broker.services, set[Any](), list[int]()
    submit = node.store.submit

    def counted(call: Any) -> Any:
        future = submit(call)
        if call.script.name in ("log.group_seek", "log.group_destroy"):
            waiting.add(future)
            most.append(sum(not each.done() for each in waiting))
            future.add_done_callback(waiting.discard)
        return future

    monkeypatch.setattr(node.store, "submit", counted)
    await commit_all(broker)
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (found,) = (await broker.ask(asked, 9)).groups[0].topics
    assert [row.committed_offset for row in found.partitions] == list(range(MANY))
    stream = node.keys.partition("t", MANY - 1).stream
    assert await node.store.command("XINFO", "GROUPS", stream)
    assert len(most) == MANY and max(most) == MAX_CONCURRENT
    assert (await broker.ask(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == 0
    assert not await node.store.command("XINFO", "GROUPS", stream)
    assert len(most) == 2 * MANY and max(most) == MAX_CONCURRENT
