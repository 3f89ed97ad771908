"""The partitions of a group with its offsets and lag."""

import msgspec

from korvet.console.described_group import DescribedGroup
from korvet.console.visit import Visit
from korvet.groups.description import TopicPartition
from korvet.groups.lag import NO_COMMIT, age_ms, lag_call, redis_ms
from korvet.groups.offset_commit import CommittedOffset, parse_commit, parse_field
from korvet.topics.table import Topic
from korvet.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)

MAX_ROWS = 500
"""Max partitions on the page."""


class OffsetRow(msgspec.Struct, frozen=True):
    """A partition that the group committed or is assigned. `lag` counts records."""

    topic: str
    partition: int
    committed: int
    """The committed offset, -1 for none."""
    first: int
    stable: int
    """Reads of committed records end here."""
    end: int
    lag: int
    age_ms: int
    """Age of the oldest unread record: 0 without lag, -1 if unknown."""
    commit_ms: int
    """Time of the commit, -1 if unknown."""
    metadata: str
    member: str
    """The member that the partition is assigned to, empty for none."""


async def offsets_of(visit: Visit, group: DescribedGroup) -> tuple[list[OffsetRow], int]:
    """Return the partitions of the group, and how many are left out."""
    counted: dict[TopicPartition, int] = {}
    if group.type == "share":
        commits, counted = await _share_offsets(visit, group.id)
    else:
        commits = await committed(visit, group.id)
    owners = {partition: each.id for each in group.members for partition in each.partitions}
    places = sorted(commits.keys() | owners.keys())
    topics: dict[str, Topic] = {}
    for name in {partition[0] for partition in places}:
        topic = await visit.services.topics.get(name)
        if topic is not None and visit.context().may_describe(name, audit=False):
            topics[name] = topic
    shown = [partition for partition in places if partition[0] in topics]
    rows = await _rows(visit, topics, shown[:MAX_ROWS], commits, owners, counted)
    return rows, len(shown) - len(shown[:MAX_ROWS])


async def _rows(
    visit: Visit,
    topics: dict[str, Topic],
    places: list[TopicPartition],
    commits: dict[TopicPartition, CommittedOffset],
    owners: dict[TopicPartition, str],
    counted: dict[TopicPartition, int],
) -> list[OffsetRow]:
    store = visit.services.store
    ends = await store.run_many(
        topics[name].partition(number).list_offsets() for name, number in places
    )
    lags = await store.run_many(
        lag_call(topics[partition[0]], partition[1], commits.get(partition, NO_COMMIT))
        for partition in places
    )
    now_ms = await redis_ms(store)
    rows = []
    for partition, end, lag in zip(places, ends, lags, strict=True):
        commit = commits.get(partition, NO_COMMIT)
        records = max(0, counted.get(partition, lag.records))
        if end.error or lag.error:
            continue  # the topic was deleted meanwhile
        rows.append(
            OffsetRow(
                topic=partition[0],
                partition=partition[1],
                committed=commit.offset,
                first=end.first,
                stable=end.next if end.stable < 0 else end.stable,
                end=end.next,
                lag=records,
                age_ms=age_ms(records, lag.oldest, now_ms),
                commit_ms=commit.time_ms,
                metadata=commit.metadata.encode("utf-8", "replace").decode(),
                member=owners.get(partition, ""),
            )
        )
    return rows


async def committed(visit: Visit, name: str) -> dict[TopicPartition, CommittedOffset]:
    """Return the group's commits of topics that exist."""
    services = visit.services
    flat = await services.store.command("HGETALL", services.keys.group_offsets(name))
    found: dict[TopicPartition, CommittedOffset] = {}
    for field, raw in zip(flat[::2], flat[1::2], strict=True):
        partition, commit = parse_field(field), parse_commit(raw)
        topic = await services.topics.get(partition[0]) if partition else None
        if partition and commit and topic is not None and commit.topic_id in ("", topic.id):
            found[partition] = commit
    return found


async def _share_offsets(
    visit: Visit, name: str
) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, int]]:
    """Return where a share group starts in its partitions, and its lag there."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
    answer = await visit.call(DescribeShareGroupOffsetsRequest(groups=[asked]))
    rows = {
        (topic.topic_name, part.partition_index): part
        for group in answer.groups
        for topic in group.topics
        for part in topic.partitions
        if not part.error_code
    }
    return (
        {partition: CommittedOffset(part.start_offset) for partition, part in rows.items()},
        {
            partition: part.lag for partition, part in rows.items()
        },  # -1 for one that it has not read
    )
