"""OffsetFetch and OffsetDelete."""

from typing import Any

from korvet.wire.messages.join_group import JoinGroupRequestProtocol
from korvet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from korvet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.conformance.asking import ABSENT, COMPACTED, TOPIC, Ask, case
from tests.conformance.cases.membership import leaving
from tests.conformance.cases.offsets import as_member, committing, fetching, row


@case("OffsetFetch")
async def fetch_offsets_never_committed(ask: Ask) -> Any:
    return [
        await ask(await fetching(ask, TOPIC, 0, 1, 2, -1)),
        await ask(await fetching(ask, ABSENT, 0)),
        await ask(await fetching(ask, "", 0)),
    ]


@case("OffsetFetch", since=2)
async def fetch_everything_of_an_absent_group(ask: Ask) -> Any:
    groups = [OffsetFetchRequestGroup(group_id=ask.group, topics=None)]
    return await ask(OffsetFetchRequest(group_id=ask.group, topics=None, groups=groups))


@case("OffsetFetch")
async def fetch_what_was_committed(ask: Ask) -> Any:
    await ask(await committing(ask, await row(ask, TOPIC, 0, 1)), 8)
    return [
        await ask(await fetching(ask, TOPIC, 1, 0, 0, 2)),
        await ask(await fetching(ask, COMPACTED, 0)),
    ]


@case("OffsetFetch", since=2)
async def fetch_everything(ask: Ask) -> Any:
    await ask(await committing(ask, await row(ask, TOPIC, 1)), 8)
    groups = [OffsetFetchRequestGroup(group_id=ask.group, topics=None)]
    return await ask(OffsetFetchRequest(group_id=ask.group, topics=None, groups=groups))


@case("OffsetFetch")
async def fetch_nothing(ask: Ask) -> Any:
    groups = [OffsetFetchRequestGroup(group_id=ask.group, topics=[])]
    return await ask(OffsetFetchRequest(group_id=ask.group, topics=[], groups=groups))


@case("OffsetFetch", since=8)
async def fetch_of_several_groups(ask: Ask) -> Any:
    await ask(await committing(ask), 8)
    rows = (await fetching(ask)).groups
    missing = OffsetFetchRequestGroup(group_id=f"{ask.group}-absent", topics=None)
    return [
        await ask(OffsetFetchRequest(groups=[*rows, missing])),
        await ask(OffsetFetchRequest(groups=[*rows, *rows])),
        await ask(OffsetFetchRequest(groups=[])),
    ]


@case("OffsetFetch", since=9)
async def fetch_with_a_member_id(ask: Ask) -> Any:
    member = await ask.stable()
    await ask(await committing(ask, await row(ask), **as_member(member)), 8)
    found = []
    for who, epoch in (
        (member.id, member.generation),
        (member.id, 9),
        ("stranger", 1),
        (None, 5),
        ("", -1),
    ):
        found.append(await ask(await fetching(ask, member_id=who, member_epoch=epoch)))
    absent = f"{ask.group}-absent"
    found.append(
        await ask(await fetching(ask, group_id=absent, member_id="stranger", member_epoch=1))
    )
    return found


def forgetting(group: str, name: str = TOPIC, *partitions: int) -> OffsetDeleteRequest:
    rows = [OffsetDeleteRequestPartition(partition_index=number) for number in partitions or (0,)]
    return OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=name, partitions=rows)]
    )


@case("OffsetDelete")
async def forget_offsets_without_a_group(ask: Ask) -> Any:
    return [await ask(forgetting("")), await ask(forgetting(ask.group))]


@case("OffsetDelete")
async def forget_offsets_of_a_group_at_rest(ask: Ask) -> Any:
    await ask(await committing(ask, await row(ask, TOPIC, 0, 1)), 8)
    return [
        await ask(forgetting(ask.group, TOPIC, 0, 0, 5, -1)),
        await ask(forgetting(ask.group, ABSENT)),
        await ask(forgetting(ask.group, COMPACTED)),
        await ask(forgetting(ask.group, "")),
        await ask(OffsetDeleteRequest(group_id=ask.group, topics=[])),
        await ask(await fetching(ask, TOPIC, 0, 1), 5),
    ]


@case("OffsetDelete")
async def forget_offsets_of_topics_that_are_read(ask: Ask) -> Any:
    member = await ask.stable()
    rows = [await row(ask, TOPIC, 0), await row(ask, COMPACTED, 0)]
    await ask(await committing(ask, *rows, **as_member(member)), 8)
    return [
        await ask(forgetting(ask.group)),
        await ask(forgetting(ask.group, TOPIC, 7)),
        await ask(forgetting(ask.group, COMPACTED)),
        await ask(await fetching(ask, COMPACTED, 0), 5),
    ]


@case("OffsetDelete")
async def forget_offsets_of_members_who_are_no_consumers(ask: Ask) -> Any:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"?")]
    await ask.stable(protocol_type="connect", protocols=protocols)
    return [await ask(forgetting(ask.group)), await ask(forgetting(ask.group, ABSENT))]


@case("OffsetDelete")
async def forget_offsets_of_consumers_with_invalid_metadata(ask: Ask) -> Any:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"?")]
    member = await ask.stable(protocols=protocols)
    await ask(await committing(ask, await row(ask), **as_member(member)), 8)
    return [await ask(forgetting(ask.group)), await ask(forgetting(ask.group, COMPACTED))]


@case("OffsetDelete")
async def forget_offsets_of_a_group_that_was_left(ask: Ask) -> Any:
    member = await ask.stable()
    await ask(await committing(ask, await row(ask), **as_member(member)), 8)
    await ask(leaving(ask.group, member.id), 1)
    return [await ask(forgetting(ask.group)), await ask(await fetching(ask), 5)]
