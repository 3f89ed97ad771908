"""Check the limits of groups: what a script would work on for long is refused before it runs."""

from typing import Any

import pytest

from korvet.admin.config_edits import Change, ConfigResourceType, Edit
from korvet.apis import TABLE
from korvet.base.errors import ErrorCode
from korvet.broker.error_responses import error_response
from korvet.store.errors import LimitReached
from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from korvet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from korvet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from korvet.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from korvet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.connected_broker import Broker

LARGE = ErrorCode.GROUP_MAX_SIZE_REACHED


async def limit(broker: Broker, **settings: int) -> None:
    edits = [Edit(name.replace("_", "."), str(value)) for name, value in settings.items()]
    change = Change(ConfigResourceType.BROKER, "", edits, False, False)
    await broker.services.config_admin.alter(change)


async def consume(broker: Broker, member: str = "m", **changes: Any) -> tuple[int, str | None]:
    fields: dict[str, Any] = {
        "group_id": "g", "member_id": member, "member_epoch": 0, "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"], "topic_partitions": [],
    }  # fmt: skip
    answer = await broker.ask(ConsumerGroupHeartbeatRequest(**{**fields, **changes}))
    return answer.error_code, answer.error_message


async def share(broker: Broker, *names: str, member: str = "m") -> tuple[int, str | None]:
    request = ShareGroupHeartbeatRequest(
        group_id="s", member_id=member, member_epoch=0, subscribed_topic_names=list(names)
    )
    answer = await broker.ask(request)
    return answer.error_code, answer.error_message


async def test_a_member_with_too_many_names_is_refused_with_the_setting(broker: Broker) -> None:
    names = [f"n{number}" for number in range(1001)]
    code, message = await consume(broker, subscribed_topic_names=names)
    assert code == LARGE and message and "group.subscription.max.topics=1000" in message
    assert (await share(broker, *names))[0] == LARGE
    sub = Subtopology(
        subtopology_id="0", source_topics=names, source_topic_regex=[], state_changelog_topics=[],
        repartition_sink_topics=[], repartition_source_topics=[], copartition_groups=[],
    )  # fmt: skip
    request = StreamsGroupHeartbeatRequest(
        group_id="x", member_id="m", member_epoch=0, rebalance_timeout_ms=1000, active_tasks=[],
        standby_tasks=[], warmup_tasks=[], topology=Topology(epoch=0, subtopologies=[sub]),
        endpoint_information_epoch=-1,
    )  # fmt: skip
    assert (await broker.ask(request)).error_code == LARGE


async def test_the_members_of_a_group_share_its_limits(broker: Broker) -> None:
    await broker.create("t")
    await limit(broker, group_subscription_max_topics=3, group_subscription_max_bytes=500)
    assert (await consume(broker, "a", subscribed_topic_names=["t", "u"]))[0] == 0
    assert (await consume(broker, "b", subscribed_topic_names=["v", "w"]))[0] == LARGE
    assert (await consume(broker, "b", subscribed_topic_names=["t", "v"]))[0] == 0
    code, message = await consume(broker, "c", rack_id="r" * 480)
    assert code == LARGE and message and ".bytes" in message
    assert (await share(broker, "t", "u", member="a"))[0] == 0
    assert (await share(broker, "v", "w", member="b"))[0] == LARGE


async def test_bytes_of_members_that_left_count_no_more(broker: Broker) -> None:
    await broker.create("t")
    await limit(broker, group_subscription_max_bytes=300)
    for number in range(5):
        member = f"m{number}"
        assert (await consume(broker, member, rack_id="r" * 200))[0] == 0
        assert (await consume(broker, f"x{number}", rack_id="r" * 200))[0] == LARGE
        await consume(broker, member, member_epoch=-1)


async def test_a_topic_that_outgrows_the_group_is_refused_for_its_members(broker: Broker) -> None:
    await broker.create("t", partitions=2)
    await limit(broker, group_subscription_max_partitions=2)
    assert (await consume(broker))[0] == 0
    await broker.create("u", partitions=1)
    assert (await consume(broker, subscribed_topic_names=["t", "u"]))[0] == LARGE
    owned = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    assert (await broker.ask(owned)).error_code == 0


def joining(**changes: Any) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "group_id": "c", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
        "member_id": "", "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"x" * 100)],
    }  # fmt: skip
    return JoinGroupRequest(**{**fields, **changes})


async def test_classic_members_have_limits_of_protocols_bytes_and_ids(broker: Broker) -> None:
    many = [JoinGroupRequestProtocol(name=f"p{n}", metadata=b"") for n in range(101)]
    answer = await broker.ask(joining(protocols=many), 3)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    await limit(broker, group_max_bytes=99)
    assert (await broker.ask(joining(), 3)).error_code == LARGE
    await limit(broker, group_max_bytes=10_000, group_max_size=2)
    codes = [(await broker.ask(joining(group_id="p"), 9)).error_code for _ in range(3)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 2 + [LARGE]


async def test_assignments_larger_than_a_group_are_refused(broker: Broker) -> None:
    await limit(broker, group_max_bytes=99)
    given = [SyncGroupRequestAssignment(member_id="m", assignment=b"x" * 100)]
    request = SyncGroupRequest(group_id="c", generation_id=1, member_id="m", assignments=given)
    assert (await broker.ask(request, 3)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_many_commits_and_leavers_take_several_scripts(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("korvet.groups.coordinator.ROWS_PER_CALL", 2)
    await broker.create("t", partitions=5)
    parts = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=n, committed_metadata="")
        for n in range(5)
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=parts)]
    answer = await broker.ask(OffsetCommitRequest(group_id="o", topics=topics), 8)
    assert [row.error_code for row in answer.topics[0].partitions] == [0] * 5
    stored = await broker.services.store.command("HLEN", broker.services.keys.group_offsets("o"))
    assert stored == 5
    members = [MemberIdentity(member_id=f"m{n}") for n in range(5)]
    left = await broker.ask(LeaveGroupRequest(group_id="o", members=members))
    assert [row.error_code for row in left.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 5


async def test_no_group_is_created_above_max_groups(broker: Broker) -> None:
    await broker.create("t")
    await limit(broker, max_groups=1)
    assert (await consume(broker))[0] == 0
    for request in (joining(), ConsumerGroupHeartbeatRequest(
        group_id="new", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"], topic_partitions=[],
    )):  # fmt: skip
        with pytest.raises(LimitReached, match=r"max\.groups=1") as caught:
            await broker.ask(request, 3 if isinstance(request, JoinGroupRequest) else None)
        row = next(row for row in TABLE if row.key == request.__message__.key)
        assert error_response(row, request, caught.value).error_code == LARGE  # type: ignore[attr-defined]
    assert (await consume(broker, "second"))[0] == 0
    await limit(broker, max_groups=0)
    assert (await consume(broker, group_id="new"))[0] == 0


async def test_no_topic_is_created_above_max_topics(broker: Broker) -> None:
    await broker.create("t")
    await limit(broker, max_topics=1)
    topic = CreatableTopic(
        name="u", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    row = (await broker.ask(CreateTopicsRequest(topics=[topic]))).topics[0]
    assert row.error_code == ErrorCode.POLICY_VIOLATION and "max.topics=1" in row.error_message
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="v")], allow_auto_topic_creation=True)
    assert (await broker.ask(asked)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await broker.services.topics.count() == 1
