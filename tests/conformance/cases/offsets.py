"""OffsetCommit."""

from typing import Any
from uuid import UUID

from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from korvet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conformance.asking import ABSENT, COMPACTED, TOPIC, Ask, case
from tests.conformance.cases.membership import ended as rebalance_ended
from tests.conformance.cases.membership import leaving, rebalancing

UNKNOWN_ID = UUID(int=7)


async def row(
    ask: Ask, name: str = TOPIC, *partitions: int, **changes: Any
) -> OffsetCommitRequestTopic:
    """Build a row of offsets for partitions of a topic, with its name and its id."""
    known = name in (TOPIC, COMPACTED)
    fields: dict[str, Any] = {"committed_offset": 5, "committed_metadata": "m", **changes}
    return OffsetCommitRequestTopic(
        name=name,
        topic_id=await ask.topic_id(name) if known else UNKNOWN_ID,
        partitions=[
            OffsetCommitRequestPartition(partition_index=number, **fields)
            for number in partitions or (0,)
        ],
    )


async def committing(ask: Ask, *rows: OffsetCommitRequestTopic, **more: Any) -> OffsetCommitRequest:
    topics = list(rows) or [await row(ask)]
    return OffsetCommitRequest(**{"group_id": ask.group, "topics": topics, **more})


def as_member(member: Any, **changes: Any) -> dict[str, Any]:
    return {
        "member_id": member.id,
        "generation_id_or_member_epoch": member.generation,
        **changes,
    }


async def fetching(
    ask: Ask, name: str = TOPIC, *partitions: int, **more: Any
) -> OffsetFetchRequest:
    known = name in (TOPIC, COMPACTED)
    group = more.pop("group_id", ask.group)
    asked = OffsetFetchRequestTopics(
        name=name,
        topic_id=await ask.topic_id(name) if known else UNKNOWN_ID,
        partition_indexes=list(partitions or (0,)),
    )
    return OffsetFetchRequest(
        group_id=group,
        topics=[asked],
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked], **more)],
    )


@case("OffsetCommit")
async def commit_for_unknown_topics_and_partitions(ask: Ask) -> Any:
    rows = [await row(ask, ABSENT, 0), await row(ask, TOPIC, 2, -1, 0)]
    return await ask(await committing(ask, *rows))


@case("OffsetCommit")
async def commit_nothing(ask: Ask) -> Any:
    return await ask(OffsetCommitRequest(group_id=ask.group, topics=[]))


@case("OffsetCommit")
async def commit_of_offsets_below_nothing(ask: Ask) -> Any:
    found = []
    for offset in (-1, -2, -(2**63), 2**62):
        rows = await row(ask, committed_offset=offset)
        found.append(await ask(await committing(ask, rows)))
        found.append(await ask(await fetching(ask), 5))
    return found


@case("OffsetCommit")
async def commit_of_metadata_that_is_too_large(ask: Ask) -> Any:
    return [
        await ask(await committing(ask, await row(ask, committed_metadata=text)))
        for text in ("x" * 4097, "x" * 4096, "\u00fc" * 2049, "\u00fc" * 4097, None, "")
    ]


@case("OffsetCommit")
async def commit_without_metadata_comes_back(ask: Ask) -> Any:
    await ask(await committing(ask, await row(ask, committed_metadata=None)))
    return await ask(await fetching(ask), 5)


@case("OffsetCommit", since=6)
async def commit_with_an_odd_leader_epoch(ask: Ask) -> Any:
    found = []
    for epoch in (-1, -5, 0, 2**31 - 1):
        await ask(await committing(ask, await row(ask, committed_leader_epoch=epoch)))
        found.append(await ask(await fetching(ask), 5))
    return found


@case("OffsetCommit", since=1)
async def commit_by_a_member_of_an_absent_group(ask: Ask) -> Any:
    return [
        await ask(await committing(ask, member_id="m", generation_id_or_member_epoch=1)),
        await ask(await committing(ask, member_id="m", generation_id_or_member_epoch=0)),
        await ask(await committing(ask, member_id="", generation_id_or_member_epoch=1)),
        await ask(await committing(ask, member_id="m", generation_id_or_member_epoch=-2)),
    ]


@case("OffsetCommit", since=1)
async def commit_by_a_name_without_a_generation(ask: Ask) -> Any:
    return [
        await ask(await committing(ask, member_id="m")),
        await ask(await committing(ask, member_id="m")),
    ]


@case("OffsetCommit", since=1)
async def commit_by_an_unknown_member(ask: Ask) -> Any:
    member = await ask.stable()
    return [
        await ask(await committing(ask, **as_member(member, member_id="stranger"))),
        await ask(await committing(ask, **as_member(member, member_id=""))),
        await ask(await committing(ask)),
        await ask(await committing(ask, member_id="stranger", generation_id_or_member_epoch=9)),
    ]


@case("OffsetCommit", since=1)
async def commit_with_another_generation(ask: Ask) -> Any:
    member = await ask.stable()
    return [
        await ask(await committing(ask, **as_member(member, generation_id_or_member_epoch=number)))
        for number in (-1, member.generation - 1, member.generation + 1, -2)
    ]


@case("OffsetCommit", since=1)
async def refused_commits_in_their_order(ask: Ask) -> Any:
    """Send commits of an unknown member with wrong topic, partition and metadata."""
    await ask.stable()
    absent, large = await row(ask, ABSENT), await row(ask, TOPIC, 1, committed_metadata="x" * 5000)
    stranger = {"member_id": "stranger", "generation_id_or_member_epoch": 1}
    return [
        await ask(await committing(ask, absent, large, await row(ask, COMPACTED), **stranger)),
        await ask(await committing(ask, absent, **stranger)),
        await ask(await committing(ask, large, **stranger)),
        await ask(await committing(ask, await row(ask, TOPIC, 9), **stranger)),
        await ask(await committing(ask, large, await row(ask, COMPACTED))),
    ]


@case("OffsetCommit", since=1)
async def commit_of_metadata_that_is_too_large_by_a_member(ask: Ask) -> Any:
    member = await ask.stable()
    large = await row(ask, TOPIC, 0, 1, committed_metadata="x" * 5000)
    return [
        await ask(await committing(ask, large, **as_member(member))),
        await ask(await committing(ask, large, await row(ask, COMPACTED), **as_member(member))),
        await ask(await fetching(ask, COMPACTED), 5),
    ]


@case("OffsetCommit", since=1)
async def commit_before_the_leader_has_synchronised(ask: Ask) -> Any:
    member = await ask.joined()
    return [
        await ask(await committing(ask, **as_member(member))),
        await ask(await committing(ask, **as_member(member, generation_id_or_member_epoch=9))),
        await ask(await committing(ask)),
    ]


@case("OffsetCommit", since=1)
async def commit_during_a_rebalance(ask: Ask) -> Any:
    member, other = await rebalancing(ask)
    found = [
        await ask(await committing(ask, **as_member(member))),
        await ask(await committing(ask, **as_member(member, generation_id_or_member_epoch=9))),
        await ask(await committing(ask)),
    ]
    await rebalance_ended(ask, member, other)
    return found


@case("OffsetCommit", since=1)
async def commit_to_a_group_that_has_lost_its_members(ask: Ask) -> Any:
    member = await ask.stable()
    await ask(leaving(ask.group, member.id), 1)
    return [
        await ask(await committing(ask, **as_member(member))),
        await ask(await committing(ask)),
        await ask(await committing(ask, generation_id_or_member_epoch=member.generation)),
    ]


@case("OffsetCommit")
async def commit_of_a_partition_named_twice(ask: Ask) -> Any:
    rows = [await row(ask, TOPIC, 0, committed_offset=n) for n in (3, 4)]
    return [
        await ask(await committing(ask, *rows)),
        await ask(await committing(ask, await row(ask, TOPIC, 1, 1))),
        await ask(await fetching(ask, TOPIC, 0, 1), 5),
    ]


@case("OffsetCommit")
async def commit_by_odd_group_ids(ask: Ask) -> Any:
    found = []
    for odd in ("", "x" * 300, "{a}:b%7B", "\x01\n\x7f", " ", "gr\u00fcn\u2603"):
        group = f"{odd}{ask.group}" if odd else ""
        found.append(await ask(await committing(ask, group_id=group)))
        found.append(await ask(await fetching(ask, group_id=group), 5))
    return found


@case("OffsetCommit", since=2, until=4)
async def commit_with_a_retention(ask: Ask) -> Any:
    return [
        await ask(await committing(ask, retention_time_ms=kept)) for kept in (-1, -2, 0, 60_000)
    ]


@case("TxnOffsetCommit")
async def commit_in_a_transaction_for_no_group(ask: Ask) -> Any:
    part = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    topic = TxnOffsetCommitRequestTopic(
        name=TOPIC, topic_id=await ask.topic_id(), partitions=[part]
    )
    return await ask(
        TxnOffsetCommitRequest(
            transactional_id=ask.group,
            group_id="",
            producer_id=1,
            producer_epoch=0,
            topics=[topic],
        )
    )
