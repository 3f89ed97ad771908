"""Check that a commit of many partitions delays no other group."""

from typing import Any

import pytest

from korvet.base.bounded import MAX_CONCURRENT
from korvet.store.errors import StoreError
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.connected_broker import Broker

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
