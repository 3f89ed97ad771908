"""Read one group: members, assignment, offsets, lag, and evidence for why it is stuck."""

import msgspec

from korvet.console import diagnosis, lag_over_time
from korvet.console.described_group import DescribedGroup, Place, describe, redis_time_ms
from korvet.console.diagnosis import Evidence
from korvet.console.lag_over_time import LagOverTime
from korvet.console.queues import LockRow, QueueRow, read_queue
from korvet.console.visit import PageError, Visit
from korvet.groups.offset_commit import CommittedOffset, parse_commit, parse_field
from korvet.scripts import log as log_scripts
from korvet.security.acl import Operation, ResourceType
from korvet.topics.table import Topic
from korvet.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)

MAX_ROWS = 500
"""Max partitions on the page."""


class MemberRow(msgspec.Struct, frozen=True):
    """A member of the group."""

    id: str
    instance: str | None
    client_id: str
    host: str
    partitions: int
    last_heartbeat_ms: int
    """-1 if unknown."""
    active: list[str]
    """Tasks of a streams group."""
    standby: list[str]


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
    commit_ms: int
    """Time of the commit, -1 if unknown."""
    metadata: str
    member: str
    """The member that the partition is assigned to, empty for none."""


class GroupPage(msgspec.Struct, frozen=True):
    """A group."""

    group: str
    type: str
    state: str
    assignor: str
    epoch: int
    members: list[MemberRow]
    offsets: list[OffsetRow]
    left_out: int
    """Partitions that the page does not show."""
    lag: int
    """Records of the partitions on the page."""
    queue: list[QueueRow]
    """The partitions of a share group, empty for other types."""
    locks: list[LockRow]
    """Records that a share group was delivered, those with the most deliveries first."""
    evidence: list[Evidence]
    """Why the group is stuck, or that it is not."""
    at_ms: int
    topics: list[str]
    """The topics of the group: those that can be reset."""
    history: LagOverTime | None
    """The recorded lag; null if the query has `history=0`."""


async def load(visit: Visit) -> GroupPage:
    """Return a group, named by the query's `id`."""
    name = group_id(visit)
    visit.require(Operation.DESCRIBE, ResourceType.GROUP, name)
    found = await described(visit, name)
    rows, left_out = await offsets_of(visit, found)
    is_share = found.type == "share"
    queue, locks = await read_queue(visit, name) if is_share else ([], [])
    return GroupPage(
        group=name,
        type=found.type,
        state=found.state,
        assignor=found.protocol,
        epoch=found.epoch,
        members=[
            MemberRow(
                each.id,
                each.instance,
                each.client_id,
                each.host,
                len(each.partitions),
                each.last_heartbeat_ms,
                each.active,
                each.standby,
            )
            for each in found.members
        ],
        offsets=rows,
        left_out=left_out,
        lag=sum(row.lag for row in rows),
        queue=queue,
        locks=locks,
        evidence=(
            diagnosis.of_queue(found, queue, locks)
            if is_share
            else await diagnosis.evidence(visit, found, rows)
        ),
        at_ms=found.at_ms,
        topics=sorted({row.topic for row in rows}),
        history=(
            None
            if visit.query("history") == "0"
            else await lag_over_time.read(visit, name, found.at_ms)
        ),
    )


def group_id(visit: Visit) -> str:
    """Return the id of the query. Raises PageError."""
    name = visit.request.query_params.get("id", "")
    if not name:
        raise PageError(400, "The group is missing: give its id, /group?id=GROUP.")
    return name


async def described(visit: Visit, name: str) -> DescribedGroup:
    """Return the group, also one that has only committed offsets."""
    try:
        return await describe(visit, name)
    except PageError as error:
        key = visit.services.keys.group_offsets(name)
        if error.status != 404 or not await visit.services.store.command("HLEN", key):
            raise
        now_ms = await redis_time_ms(visit)
        return DescribedGroup(name, "classic", "Empty", "", -1, [], now_ms)


async def offsets_of(visit: Visit, group: DescribedGroup) -> tuple[list[OffsetRow], int]:
    """Return the partitions of the group, and how many are left out."""
    counted: dict[Place, int] = {}
    if group.type == "share":
        commits, counted = await _share_offsets(visit, group.group)
    else:
        commits = await committed(visit, group.group)
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
    store, keys = visit.services.store, visit.services.keys
    ends = await store.run_many(
        log_scripts.list_offsets(keys, name, number, topic_id=topics[name].id)
        for name, number in places
    )
    lags = await store.run_many(
        log_scripts.lag(
            keys,
            name,
            number,
            topic_id=topics[name].id,
            offset=max(commits[name, number].offset if (name, number) in commits else 0, 0),
        )
        for name, number in places
    )
    rows = []
    for place, end, lag in zip(places, ends, lags, strict=True):
        commit = commits.get(place, CommittedOffset(-1))
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
                lag=max(0, counted.get(place, lag.records)),
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
