"""Static members: duplicate, unknown and leaving group instance ids."""

from typing import Any

from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.leave_group import MemberIdentity
from tests.conformance.asking import TOPIC, Ask, Member, case, joining
from tests.conformance.cases.membership import beating, leaving, syncing
from tests.conformance.cases.offsets import committing


async def replaced(ask: Ask) -> tuple[Member, Member]:
    """Replace a static member by a new one of the same instance id. Returns both."""
    old = await ask.stable(group_instance_id="i")
    new = await ask.join(group_instance_id="i")
    return old, Member(ask.group, new.member_id, new.generation_id)


@case("JoinGroup", since=5)
async def an_unknown_instance(ask: Ask) -> Any:
    await ask.stable(group_instance_id="i")
    return [
        await ask(joining(ask.group, group_instance_id="j", member_id="stranger")),
        await ask(joining(f"{ask.group}-absent", group_instance_id="j", member_id="stranger")),
    ]


@case("JoinGroup", since=5)
async def an_instance_with_an_unknown_member_id(ask: Ask) -> Any:
    await ask.stable(group_instance_id="i")
    return await ask(joining(ask.group, group_instance_id="i", member_id="stranger"))


@case("JoinGroup", since=5)
async def an_instance_comes_back(ask: Ask) -> Any:
    await ask.stable(group_instance_id="i")
    return await ask(joining(ask.group, group_instance_id="i"))


@case("JoinGroup", since=5)
async def an_instance_comes_back_before_the_leader_has_synchronised(ask: Ask) -> Any:
    await ask.joined(group_instance_id="i")
    return await ask(joining(ask.group, group_instance_id="i"))


@case("JoinGroup", since=5)
async def the_old_id_of_an_instance_joins(ask: Ask) -> Any:
    old, _ = await replaced(ask)
    return await ask(joining(ask.group, group_instance_id="i", member_id=old.id))


@case("JoinGroup", since=5)
async def an_instance_without_a_name(ask: Ask) -> Any:
    return await ask(joining(ask.group, group_instance_id=""))


@case("SyncGroup", since=3)
async def the_old_id_of_an_instance_synchronises(ask: Ask) -> Any:
    old, new = await replaced(ask)
    return [
        await ask(syncing(old, group_instance_id="i")),
        await ask(syncing(old)),
        await ask(syncing(old, group_instance_id="i", generation_id=9)),
        await ask(syncing(new, group_instance_id="j")),
        await ask(syncing(new, group_instance_id="i")),
        await ask(syncing(new)),
    ]


@case("Heartbeat", since=3)
async def the_old_id_of_an_instance_heartbeats(ask: Ask) -> Any:
    old, new = await replaced(ask)
    return [
        await ask(beating(old, group_instance_id="i")),
        await ask(beating(old)),
        await ask(beating(old, group_instance_id="i", generation_id=9)),
        await ask(beating(new, group_instance_id="j")),
        await ask(beating(new, group_instance_id="i")),
    ]


@case("OffsetCommit", since=7)
async def the_old_id_of_an_instance_commits(ask: Ask) -> Any:
    old, new = await replaced(ask)

    async def commit(member: Member, instance: str, generation: int | None = None) -> Any:
        number = member.generation if generation is None else generation
        return await ask(
            await committing(
                ask,
                member_id=member.id,
                generation_id_or_member_epoch=number,
                group_instance_id=instance,
            )
        )

    return [
        await commit(old, "i"),
        await commit(old, "i", 9),
        await commit(new, "j"),
        await commit(new, "i", 9),
        await commit(new, "i"),
    ]


@case("OffsetCommit", since=7)
async def a_consumer_group_member_commits_with_another_instance(ask: Ask) -> Any:
    async def beat(member_id: str, epoch: int, instance: str | None) -> int:
        answer = await ask(
            ConsumerGroupHeartbeatRequest(
                group_id=ask.group,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=[],
            ),
            1,
        )
        assert answer.error_code == 0, answer
        return int(answer.member_epoch)

    async def commit(member_id: str, epoch: int, instance: str | None) -> Any:
        return await ask(
            await committing(
                ask,
                member_id=member_id,
                generation_id_or_member_epoch=epoch,
                group_instance_id=instance,
            )
        )

    static, dynamic = await beat("static", 0, "i"), await beat("dynamic", 0, None)
    found = [
        *[await commit("static", static, instance) for instance in ("i", None, "", "j")],
        *[await commit("dynamic", dynamic, instance) for instance in (None, "i", "j")],
        await commit("", static, "i"),
        await commit("stranger", static, "i"),
        await commit("static", static + 9, "j"),
        await commit("static", -1, "i"),
    ]
    await beat("static", -2, "i")
    found += [await commit("static", epoch, "i") for epoch in (static, -2)]
    new = await beat("new", 0, "i")
    return [
        *found,
        await commit("static", static, "i"),
        *[await commit("new", new, instance) for instance in ("i", "j")],
    ]


@case("LeaveGroup", since=3)
async def instances_leave(ask: Ask) -> Any:
    old, new = await replaced(ask)

    async def leave(member_id: str, instance: str | None) -> Any:
        row = MemberIdentity(member_id=member_id, group_instance_id=instance)
        return await ask(leaving(ask.group, members=[row]))

    return [
        await leave(old.id, "i"),
        await leave("", "j"),
        await leave("stranger", "j"),
        await leave("", ""),
        await leave("", None),
        await leave("", "i"),
        await leave(new.id, "i"),
    ]


@case("DescribeGroups", since=4)
async def an_instance_is_described(ask: Ask) -> Any:
    await ask.stable(group_instance_id="i")
    return await ask(DescribeGroupsRequest(groups=[ask.group]))
