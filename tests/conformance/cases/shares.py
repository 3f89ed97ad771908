"""Share groups: their members, their offsets, and the requests of groups of other types."""

import asyncio
from typing import Any

from korvet.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from korvet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from korvet.wire.messages.heartbeat import HeartbeatRequest
from korvet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from korvet.wire.messages.list_groups import ListGroupsRequest
from korvet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from korvet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from korvet.wire.messages.share_group_describe import ShareGroupDescribeRequest
from korvet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from korvet.wire.messages.sync_group import SyncGroupRequest
from tests.conformance.asking import ABSENT, TOPIC, Ask, case, joining
from tests.conformance.cases.offsets import committing

BEAT, ALTER, OFFSETS, DELETE = 1, 0, 1, 0
"""API versions of the requests that prepare a case."""
ME = "m" * 22


def beating(ask: Ask, epoch: int = 0, **changes: Any) -> ShareGroupHeartbeatRequest:
    """Return a heartbeat of a share group's member."""
    fields: dict[str, Any] = {"group_id": ask.group, "member_id": ME, "member_epoch": epoch}
    if epoch == 0:
        fields["subscribed_topic_names"] = [TOPIC]
    return ShareGroupHeartbeatRequest(**{**fields, **changes})


def moving(
    group: str, *offsets: tuple[int, int], topic: str = TOPIC
) -> AlterShareGroupOffsetsRequest:
    """Return a request to move a group to the offsets of partitions."""
    rows = [
        AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
        for number, offset in offsets
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=rows)]
    return AlterShareGroupOffsetsRequest(group_id=group, topics=topics)


def looking(group: str, *partitions: int, topic: str = TOPIC) -> DescribeShareGroupOffsetsRequest:
    """Return a request for the offsets of partitions; without any, of all topics."""
    rows = [DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(partitions))]
    asked = DescribeShareGroupOffsetsRequestGroup(
        group_id=group, topics=rows if partitions else None
    )
    return DescribeShareGroupOffsetsRequest(groups=[asked])


def dropping(group: str, *topics: str) -> DeleteShareGroupOffsetsRequest:
    """Return a request to delete a group's offsets of topics."""
    rows = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=rows)


async def settled(ask: Ask) -> None:
    """Join the group as its only member, until both partitions of the topic are assigned."""
    answer = await ask(beating(ask), BEAT)
    assert answer.error_code == 0, answer
    for _ in range(100):
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return
        await asyncio.sleep(0.1)
        answer = await ask(beating(ask, answer.member_epoch, subscribed_topic_names=[TOPIC]), BEAT)
        assert answer.error_code == 0, answer
    raise TimeoutError("the group does not assign")


@case("ShareGroupHeartbeat")
async def share_members_that_cannot_be(ask: Ask) -> Any:
    return [
        await ask(beating(ask, **changes))
        for changes in (
            {"member_id": ""},
            {"member_id": " "},
            {"member_id": "m" * 37},
            {"group_id": ""},
            {"group_id": " "},
            {"rack_id": ""},
            {"subscribed_topic_names": None},
            {"subscribed_topic_names": []},
            {"epoch": -2},
            {"epoch": -3},
        )
    ]


@case("ShareGroupHeartbeat")
async def unknown_share_members(ask: Ask) -> Any:
    first = [await ask(beating(ask, epoch)) for epoch in (1, -1)]
    assert (await ask(beating(ask))).error_code == 0
    other = [await ask(beating(ask, epoch, member_id="n" * 22)) for epoch in (1, -1)]
    return [*first, *other, await ask(beating(ask, 99))]


@case("ShareGroupHeartbeat")
async def a_share_member_that_comes_and_goes(ask: Ask) -> Any:
    answers = [
        await ask(beating(ask, member_id="m" * 36, rack_id="here")),
        await ask(beating(ask, subscribed_topic_names=[ABSENT, ABSENT])),
        await ask(beating(ask)),
        await ask(beating(ask, -1)),
        await ask(beating(ask, -1)),
        await ask(beating(ask, -1, member_id="m" * 36)),
        await ask(beating(ask)),
    ]
    return [(row.error_code, row.member_id, row.member_epoch > 0) for row in answers]


@case("ShareGroupHeartbeat")
async def share_members_of_groups_of_other_types(ask: Ask) -> Any:
    await ask.stable(group_id=f"{ask.group}-classic")
    await ask(await committing(ask, group_id=f"{ask.group}-simple"), 8)
    return [
        await ask(beating(ask, epoch, group_id=f"{ask.group}-{kind}"))
        for kind in ("classic", "simple")
        for epoch in (0, 1, -1)
    ]


async def _others(ask: Ask) -> list[Any]:
    """Send requests of classic and consumer groups to a share group. Returns the responses."""
    group = ask.group
    fetching = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])],
            )
        ]
    )
    deleting = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
        ],
    )
    consuming = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=ME,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    syncing = SyncGroupRequest(group_id=group, generation_id=1, member_id=ME, assignments=[])
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=ME)
    leaving = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=ME)])
    return [
        await ask(joining(group), 3),
        await ask(syncing, 3),
        await ask(beat, 3),
        await ask(leaving, 3),
        await ask(consuming, 1),
        await ask(await committing(ask), 8),
        await ask(fetching, 8),
        await ask(deleting, 0),
        await ask(DescribeGroupsRequest(groups=[group]), 6),
        await ask(_described(ConsumerGroupDescribeRequest, group), 0),
    ]


@case("ShareGroupHeartbeat")
async def requests_of_other_groups_to_a_share_group(ask: Ask) -> Any:
    assert (await ask(beating(ask))).error_code == 0
    stable = await _others(ask)
    assert (await ask(beating(ask, -1))).error_code == 0
    return [stable, await _others(ask)]


@case("ShareGroupDescribe")
async def share_groups_described(ask: Ask) -> Any:
    await ask(await committing(ask, group_id=f"{ask.group}-simple"), 8)
    await settled(ask)
    names = [ask.group, f"{ask.group}-simple", f"{ask.group}-absent", ""]
    full = await ask(_described(ShareGroupDescribeRequest, *names))
    await ask(beating(ask, -1), BEAT)
    empty = await ask(_described(ShareGroupDescribeRequest, ask.group))
    answers = [[_without_epochs(row) for row in answer.groups] for answer in (full, empty)]
    return [sorted(rows, key=lambda row: str(row[0])) for rows in answers]


def _described(kind: Any, *groups: str) -> Any:
    return kind(group_ids=list(groups), include_authorized_operations=False)


def _without_epochs(group: Any) -> Any:
    members = [
        (row.member_id, row.rack_id, row.client_id, row.subscribed_topic_names, row.assignment)
        for row in group.members
    ]
    return [group.group_id, group.error_code, group.group_state, group.assignor_name, members]


@case("ShareGroupDescribe")
async def share_groups_listed(ask: Ask) -> Any:
    await ask(beating(ask), BEAT)
    await ask(beating(ask, group_id=f"{ask.group}-empty"), BEAT)
    await ask(beating(ask, -1, group_id=f"{ask.group}-empty"), BEAT)
    found = []
    for states, types in (([], ["share"]), (["Empty"], ["Share"]), (["stable"], []), ([], [])):
        answer = await ask(ListGroupsRequest(states_filter=states, types_filter=types), 5)
        mine = [row for row in answer.groups if row.group_id.startswith(ask.group)]
        found.append(sorted(mine, key=lambda row: row.group_id))
    return found


@case("ShareGroupDescribe")
async def share_groups_deleted(ask: Ask) -> Any:
    await settled(ask)
    first = await ask(DeleteGroupsRequest(groups_names=[ask.group]), 2)
    await ask(beating(ask, -1), BEAT)
    return [
        first,
        await ask(DeleteGroupsRequest(groups_names=[ask.group]), 2),
        await ask(DeleteGroupsRequest(groups_names=[ask.group]), 2),
        await ask(looking(ask.group), OFFSETS),
    ]


@case("DescribeShareGroupOffsets")
async def share_offsets_of_nothing(ask: Ask) -> Any:
    await settled(ask)
    nothing = DescribeShareGroupOffsetsRequestGroup(group_id=ask.group, topics=[])
    return [
        await ask(looking(ask.group)),
        await ask(looking(ask.group, 0, 1)),
        await ask(looking(ask.group, 0, topic=ABSENT)),
        await ask(looking(f"{ask.group}-absent")),
        await ask(looking(f"{ask.group}-absent", 0)),
        await ask(DescribeShareGroupOffsetsRequest(groups=[])),
        await ask(DescribeShareGroupOffsetsRequest(groups=[nothing])),
    ]


@case("AlterShareGroupOffsets")
async def a_share_group_moved(ask: Ask) -> Any:
    return [
        await ask(moving(ask.group, (0, 3), (1, 4), (7, 3))),
        await ask(looking(ask.group), OFFSETS),
        await ask(moving(ask.group, (0, 5), (1, 0))),
        await ask(looking(ask.group, 0, 1), OFFSETS),
        await ask(moving(ask.group, (0, -1))),
        await ask(looking(ask.group, 0, 1), OFFSETS),
        await ask(moving(ask.group, (0, 3), topic=ABSENT)),
        await ask(moving("", (0, 3))),
        await ask(AlterShareGroupOffsetsRequest(group_id=f"{ask.group}-none", topics=[])),
        await ask(moving(f"{ask.group}-absent", (0, 3), topic=ABSENT)),
        await ask(_described(ShareGroupDescribeRequest, f"{ask.group}-none"), 1),
        await ask(_described(ShareGroupDescribeRequest, f"{ask.group}-absent"), 1),
    ]


@case("AlterShareGroupOffsets")
async def groups_that_cannot_be_moved(ask: Ask) -> Any:
    await ask(await committing(ask, group_id=f"{ask.group}-simple"), 8)
    await settled(ask)
    return [
        await ask(moving(ask.group, (0, 3))),
        await ask(moving(f"{ask.group}-simple", (0, 3))),
        await ask(moving(ask.group, (0, 3), topic=ABSENT)),
    ]


@case("DeleteShareGroupOffsets")
async def share_offsets_deleted(ask: Ask) -> Any:
    await ask(await committing(ask, group_id=f"{ask.group}-simple"), 8)
    await settled(ask)
    full = await ask(dropping(ask.group, TOPIC))
    await ask(beating(ask, -1), BEAT)
    return [
        full,
        await ask(dropping(ask.group, ABSENT)),
        await ask(dropping(ask.group, TOPIC, ABSENT)),
        await ask(dropping(ask.group, TOPIC)),
        await ask(looking(ask.group), OFFSETS),
        await ask(dropping(f"{ask.group}-absent", TOPIC)),
        await ask(dropping(f"{ask.group}-simple", TOPIC)),
        await ask(dropping("", TOPIC)),
        await ask(dropping(ask.group)),
    ]
