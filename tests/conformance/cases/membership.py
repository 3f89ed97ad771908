"""SyncGroup, Heartbeat and LeaveGroup of dynamic members."""

import asyncio
from typing import Any

from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.heartbeat import HeartbeatRequest
from korvet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from korvet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.conformance.asking import Ask, Member, case, joining


def syncing(member: Member, **changes: Any) -> SyncGroupRequest:
    fields: dict[str, Any] = {
        "group_id": member.group,
        "generation_id": member.generation,
        "member_id": member.id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    }
    return SyncGroupRequest(**{**fields, **changes})


def beating(member: Member, **changes: Any) -> HeartbeatRequest:
    fields: dict[str, Any] = {
        "group_id": member.group,
        "generation_id": member.generation,
        "member_id": member.id,
    }
    return HeartbeatRequest(**{**fields, **changes})


def leaving(group: str, *members: str, **more: Any) -> LeaveGroupRequest:
    rows = [MemberIdentity(member_id=member) for member in members]
    first = members[0] if members else ""
    return LeaveGroupRequest(**{"group_id": group, "member_id": first, "members": rows, **more})


async def rebalancing(ask: Ask) -> tuple[Member, "asyncio.Task[Any]"]:
    """Start a rebalance. Returns a member of the group and the pending JoinGroup of another."""
    member = await ask.stable()
    other = asyncio.create_task(ask.join())
    for _ in range(10_000):
        if (await ask(beating(member), 3)).error_code == 27:
            return member, other
    raise AssertionError("the group does not rebalance")


async def ended(ask: Ask, member: Member, other: "asyncio.Task[Any]") -> None:
    """End the rebalance: the member leaves, and the other one joins."""
    await ask(leaving(member.group, member.id), 1)
    await other


@case("SyncGroup")
async def sync_after_no_time_to_rebalance(ask: Ask) -> Any:
    member = await ask.joined(rebalance_timeout_ms=0)
    return await ask(syncing(member))


@case("SyncGroup")
async def sync_without_a_group_id(ask: Ask) -> Any:
    return await ask(syncing(Member("", "m", 1)))


@case("SyncGroup")
async def sync_with_an_absent_group(ask: Ask) -> Any:
    return await ask(syncing(Member(ask.group, "m", 1)))


@case("SyncGroup")
async def sync_by_an_unknown_member(ask: Ask) -> Any:
    member = await ask.stable()
    return [
        await ask(syncing(member, member_id="stranger")),
        await ask(syncing(member, member_id="", generation_id=-1)),
        await ask(syncing(member, member_id="stranger", generation_id=7)),
    ]


@case("SyncGroup")
async def sync_with_another_generation(ask: Ask) -> Any:
    member = await ask.stable()
    return [
        await ask(syncing(member, generation_id=generation))
        for generation in (-1, member.generation - 1, member.generation + 1)
    ]


@case("SyncGroup", since=5)
async def sync_with_another_protocol(ask: Ask) -> Any:
    member = await ask.stable()
    return [
        await ask(syncing(member, protocol_type="connect")),
        await ask(syncing(member, protocol_name="sticky")),
        await ask(syncing(member, protocol_type="connect", generation_id=7)),
        await ask(syncing(member, protocol_type="connect", member_id="stranger")),
        await ask(syncing(member, protocol_type="")),
    ]


@case("SyncGroup", since=5)
async def sync_without_type_or_name(ask: Ask) -> Any:
    member = await ask.stable()
    return [
        await ask(syncing(member, protocol_type=None)),
        await ask(syncing(member, protocol_name=None)),
        await ask(syncing(member, protocol_type=None, group_id="")),
        await ask(syncing(member, protocol_name=None, member_id="stranger")),
    ]


@case("SyncGroup")
async def assignments_for_unknown_members(ask: Ask) -> Any:
    member = await ask.joined()
    rows = [
        SyncGroupRequestAssignment(member_id="stranger", assignment=b"theirs"),
        SyncGroupRequestAssignment(member_id=member.id, assignment=b"mine"),
    ]
    return [
        await ask(syncing(member, assignments=rows)),
        await ask(DescribeGroupsRequest(groups=[ask.group]), 5),
    ]


@case("SyncGroup")
async def a_leader_that_forgets_itself(ask: Ask) -> Any:
    member = await ask.joined()
    return [
        await ask(syncing(member)),
        await ask(DescribeGroupsRequest(groups=[ask.group]), 5),
    ]


@case("SyncGroup")
async def a_leader_that_synchronises_again(ask: Ask) -> Any:
    member = await ask.stable()
    rows = [SyncGroupRequestAssignment(member_id=member.id, assignment=b"other")]
    return await ask(syncing(member, assignments=rows))


@case("SyncGroup")
async def an_assignment_named_twice(ask: Ask) -> Any:
    member = await ask.joined()
    rows = [
        SyncGroupRequestAssignment(member_id=member.id, assignment=data) for data in (b"1", b"2")
    ]
    return await ask(syncing(member, assignments=rows))


@case("SyncGroup")
async def sync_during_a_rebalance(ask: Ask) -> Any:
    member, other = await rebalancing(ask)
    found = [await ask(syncing(member)), await ask(syncing(member, generation_id=7))]
    await ended(ask, member, other)
    return found


@case("SyncGroup")
async def sync_with_an_empty_group(ask: Ask) -> Any:
    member = await ask.stable()
    await ask(leaving(ask.group, member.id), 1)
    return await ask(syncing(member))


@case("Heartbeat")
async def heartbeat_without_a_group_id(ask: Ask) -> Any:
    return await ask(beating(Member("", "m", 1)))


@case("Heartbeat")
async def heartbeat_to_an_absent_group(ask: Ask) -> Any:
    return await ask(beating(Member(ask.group, "m", 1)))


@case("Heartbeat")
async def heartbeat_of_an_unknown_member(ask: Ask) -> Any:
    member = await ask.stable()
    return [
        await ask(beating(member, member_id="stranger")),
        await ask(beating(member, member_id="")),
        await ask(beating(member, member_id="stranger", generation_id=7)),
    ]


@case("Heartbeat")
async def heartbeat_of_another_generation(ask: Ask) -> Any:
    member = await ask.stable()
    return [
        await ask(beating(member, generation_id=generation))
        for generation in (-1, member.generation - 1, member.generation + 1)
    ]


@case("Heartbeat")
async def heartbeat_of_a_member_with_only_an_id(ask: Ask) -> Any:
    answer = await ask(joining(ask.group), 5)
    return [
        await ask(beating(Member(ask.group, answer.member_id, generation)))
        for generation in (-1, 0, 1)
    ]


@case("Heartbeat")
async def heartbeat_before_the_leader_has_synchronised(ask: Ask) -> Any:
    member = await ask.joined()
    return [await ask(beating(member)), await ask(beating(member, generation_id=7))]


@case("Heartbeat")
async def heartbeat_during_a_rebalance(ask: Ask) -> Any:
    member, other = await rebalancing(ask)
    found = [await ask(beating(member)), await ask(beating(member, generation_id=7))]
    await ended(ask, member, other)
    return found


@case("Heartbeat")
async def heartbeat_after_leaving(ask: Ask) -> Any:
    member = await ask.stable()
    await ask(leaving(ask.group, member.id), 1)
    return await ask(beating(member))


@case("LeaveGroup")
async def leave_without_a_group_id(ask: Ask) -> Any:
    return await ask(leaving("", "m"))


@case("LeaveGroup")
async def leave_an_absent_group(ask: Ask) -> Any:
    return await ask(leaving(ask.group, "m"))


@case("LeaveGroup")
async def an_unknown_member_leaves(ask: Ask) -> Any:
    await ask.stable()
    return [await ask(leaving(ask.group, "stranger")), await ask(leaving(ask.group, ""))]


@case("LeaveGroup", since=3)
async def several_leave_and_some_are_unknown_members(ask: Ask) -> Any:
    member = await ask.stable()
    return [
        await ask(leaving(ask.group, "stranger", member.id, member.id)),
        await ask(DescribeGroupsRequest(groups=[ask.group]), 5),
    ]


@case("LeaveGroup", since=3)
async def no_member_leaves(ask: Ask) -> Any:
    await ask.stable()
    return [await ask(leaving(ask.group)), await ask(leaving(f"{ask.group}-absent"))]


@case("LeaveGroup")
async def a_member_with_only_an_id_leaves(ask: Ask) -> Any:
    answer = await ask(joining(ask.group), 5)
    return [
        await ask(leaving(ask.group, answer.member_id)),
        await ask(leaving(ask.group, answer.member_id)),
    ]


@case("LeaveGroup")
async def leave_twice(ask: Ask) -> Any:
    member = await ask.stable()
    return [await ask(leaving(ask.group, member.id)), await ask(leaving(ask.group, member.id))]
