"""Read a group of any type as the pages show it: members with their heartbeats, offsets and lag.

Of a share group (KIP-932): counts of its partitions, and records that are locked.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict

from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.console.visit import PageError, Visit, check
from korvet.groups import description
from korvet.groups.description import CLASSIC, TopicPartition, describe_any, require_topics
from korvet.groups.lag import NO_COMMIT, age_ms, lag_call, parse_commits, redis_ms
from korvet.groups.lag_survey import Sample, is_growing, read_earlier
from korvet.groups.offset_commit import CommittedOffset
from korvet.groups.share_group import SharePartition
from korvet.security.acl import Operation, ResourceType
from korvet.topics.lifecycle import Refused
from korvet.topics.table import Topic
from korvet.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)

MAX_ROWS = 500
"""Max partitions on the page."""
MAX_RUNS = 50
"""Max delivered runs that are read of each partition."""
MAX_LOCKS = 500
"""Max delivered runs on a page."""


class Member(description.Member, frozen=True, kw_only=True):
    """A member of a group."""

    partitions: list[TopicPartition]
    """Those that it is assigned; of a streams group those that its active tasks read."""
    deadline_ms: int
    """Time at which the broker removes it without another heartbeat, -1 if unknown."""
    last_heartbeat_ms: int
    """Time of its last heartbeat, -1 if unknown."""


class DescribedGroup(description.Group, frozen=True, kw_only=True):
    """A group with its members."""

    members: Sequence[Member]
    at_ms: int
    """Redis's clock."""


async def describe(visit: Visit, name: str) -> DescribedGroup:
    """Return the group. Raises PageError if there is none, or the user may not describe it."""
    services = visit.services
    visit.require(Operation.DESCRIBE, ResourceType.GROUP, name)
    try:
        group = await describe_any(services.groups, name)
        if group.type != CLASSIC:
            await require_topics(group, services.topics, visit.context().may_describe)
    except Refused as refused:
        if refused.error == ErrorCode.GROUP_ID_NOT_FOUND:
            raise PageError(404, f"There is no group {name!r}.") from None
        check(refused.error, refused.reason)
        raise
    key = services.keys.group(name).deadlines
    moments = await services.store.command("ZRANGE", key, 0, -1, "WITHSCORES")
    deadlines = {id.decode("utf-8", "replace"): int(float(at)) for id, at in chunks(moments, 2)}
    now_ms = await redis_ms(services.store)
    sessions = await _sessions(visit, group)
    partitions = await group.partitions(services.topics)
    members = []
    for member, places, session_ms in zip(group.members, partitions, sessions, strict=True):
        # Deadlines of modern groups are rounded up.
        at_ms = deadlines.get(member.id if group.type == CLASSIC else f"m:{member.id}", -1)
        last_ms = min(at_ms - session_ms, now_ms) if at_ms >= 0 and session_ms else -1
        row = Member(
            **asdict(member), partitions=places, deadline_ms=at_ms, last_heartbeat_ms=last_ms
        )
        members.append(row)
    return DescribedGroup(**asdict(group) | {"members": members}, at_ms=now_ms)


async def _sessions(visit: Visit, group: description.Group) -> list[int]:
    """Return the members' session timeouts in ms, 0 if unknown."""
    services = visit.services
    if group.type != CLASSIC:
        configs = services.configs.group(group.id, services.settings)
        session_ms = int(configs[f"{group.type}.session.timeout.ms"].value or 0)
        return [session_ms] * len(group.members)
    if not group.members:
        return []
    key = services.keys.group(group.id).members
    rows = await services.store.command("HMGET", key, *(each.id for each in group.members))
    words = [(row or b"").split(b" ")[0] for row in rows]
    return [int(word) if word.isdigit() else 0 for word in words]


# Offsets.


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
    grows: bool
    """Whether the lag is greater than some minutes ago."""


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
    services = visit.services
    samples = await read_earlier(services.store, services.keys, [group.id])
    rows = await _offset_rows(
        visit, topics, shown[:MAX_ROWS], commits, owners, counted, samples.get(group.id)
    )
    return rows, len(shown) - len(shown[:MAX_ROWS])


async def _offset_rows(
    visit: Visit,
    topics: dict[str, Topic],
    places: list[TopicPartition],
    commits: dict[TopicPartition, CommittedOffset],
    owners: dict[TopicPartition, str],
    counted: dict[TopicPartition, int],
    earlier: Sample | None,
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
                grows=is_growing(records, earlier, *partition),
            )
        )
    return rows


async def committed(visit: Visit, name: str) -> dict[TopicPartition, CommittedOffset]:
    """Return the group's commits of topics that exist."""
    services = visit.services
    flat = await services.store.command("HGETALL", services.keys.group_offsets(name))
    rows = await parse_commits(services.topics, zip(flat[::2], flat[1::2], strict=True))
    return {(topic.name, number): commit for topic, number, commit in rows}


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
        {partition: part.lag for partition, part in rows.items()},  # -1: it has not read it
    )


# Share groups.


class QueueRow(msgspec.Struct, frozen=True):
    """A partition of a share group. Counts are of records from the start offset on."""

    topic: str
    partition: int
    start: int
    """-1 if the group has not read the partition."""
    available: int
    acquired: int
    acknowledged: int
    archived: int
    dead_letters: int
    """Dead letters that are not copied to their topic yet."""
    lag: int


class LockRow(msgspec.Struct, frozen=True):
    """Delivered records, locked by a member until the deadline."""

    topic: str
    partition: int
    first: int
    last: int
    deliveries: int
    """How often they were delivered."""
    member: str
    """Empty if they are available again."""
    deadline_ms: int
    """End of the lock, or of the delay before the next delivery; 0 for none."""


async def read_queue(visit: Visit, group: str) -> tuple[list[QueueRow], list[LockRow]]:
    """Return the partitions and the locks of a share group, of topics that the user may see."""
    parts = [
        part
        for part in await visit.services.share_offsets.describe_all(group, runs=MAX_RUNS)
        if visit.context().may_describe(part.topic.name, audit=False)
    ]
    return [_queue_row(part) for part in parts], _locks(parts)[:MAX_LOCKS]


async def lag_of(visit: Visit, group: str) -> tuple[int, list[str], int]:
    """Return the lag, the topics and the number of partitions of a share group."""
    rows, _ = await read_queue(visit, group)
    return sum(max(0, row.lag) for row in rows), sorted({row.topic for row in rows}), len(rows)


def _queue_row(part: SharePartition) -> QueueRow:
    values = asdict(part) | {"topic": part.topic.name}
    return QueueRow(**{name: values[name] for name in QueueRow.__struct_fields__})


def _locks(parts: Sequence[SharePartition]) -> list[LockRow]:
    """Return the delivered runs, those with the most deliveries first."""
    rows = [
        LockRow(topic=part.topic.name, partition=part.partition, **asdict(run))
        for part in parts
        for run in part.runs
    ]
    return sorted(rows, key=lambda row: (-row.deliveries, row.topic, row.partition, row.first))
