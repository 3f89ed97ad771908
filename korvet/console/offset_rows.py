"""The partitions of a group with its offsets and lag."""

import msgspec

from korvet.console.described_group import DescribedGroup
from korvet.console.visit import Visit
from korvet.groups.description import Place
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
    counted: dict[Place, int] = {}
    if group.type == "share":
        commits, counted = await _share_offsets(visit, group.id)
    else:
        commits = await committed(visit, group.id)
    owners = {place: each.id for each in group.members for place in each.partitions}
    places = sorted(commits.keys() | owners.keys())
    topics: dict[str, Topic] = {}
    for name in {place[0] for place in places}:
        topic = await visit.services.topics.get(name)
        if topic is not None and visit.context().may_describe(name, audit=False):
            topics[name] = topic
    shown = [place for place in places if place[0] in topics]
    rows = await _rows(visit, topics, shown[:MAX_ROWS], commits, owners, counted)
    return rows, len(shown) - len(shown[:MAX_ROWS])


async def _rows(
    visit: Visit,
    topics: dict[str, Topic],
    places: list[Place],
    commits: dict[Place, CommittedOffset],
    owners: dict[Place, str],
    counted: dict[Place, int],
) -> list[OffsetRow]:
    store = visit.services.store
    ends = await store.run_many(
        topics[name].partition(number).list_offsets() for name, number in places
    )
    lags = await store.run_many(
        lag_call(topics[place[0]], place[1], commits.get(place, NO_COMMIT)) for place in places
    )
    now_ms = await redis_ms(store)
    rows = []
    for place, end, lag in zip(places, ends, lags, strict=True):
        commit = commits.get(place, NO_COMMIT)
        records = max(0, counted.get(place, lag.records))
        if end.error or lag.error:
            continue  # the topic was deleted meanwhile
        rows.append(
            OffsetRow(
                topic=place[0],
                partition=place[1],
                committed=commit.offset,
                first=end.first,
                stable=end.next if end.stable < 0 else end.stable,
                end=end.next,
                lag=records,
                age_ms=age_ms(records, lag.oldest, now_ms),
                commit_ms=commit.time_ms,
                metadata=commit.metadata.encode("utf-8", "replace").decode(),
                member=owners.get(place, ""),
            )
        )
    return rows


async def committed(visit: Visit, name: str) -> dict[Place, CommittedOffset]:
    """Return the group's commits of topics that exist."""
    services = visit.services
    flat = await services.store.command("HGETALL", services.keys.group_offsets(name))
    found: dict[Place, CommittedOffset] = {}
    for field, raw in zip(flat[::2], flat[1::2], strict=True):
        place, commit = parse_field(field), parse_commit(raw)
        topic = await services.topics.get(place[0]) if place else None
        if place and commit and topic is not None and commit.topic_id in ("", topic.id):
            found[place] = commit
    return found


async def _share_offsets(
    visit: Visit, name: str
) -> tuple[dict[Place, CommittedOffset], dict[Place, int]]:
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
        {place: CommittedOffset(part.start_offset) for place, part in rows.items()},
        {place: part.lag for place, part in rows.items()},  # -1 for one that it has not read
    )
