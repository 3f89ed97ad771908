"""Read the list of groups; of one group members, offsets, lag, and why it is stuck."""

from collections.abc import Sequence

import msgspec

from korvet.broker.ops.finding import Finding
from korvet.console import diagnosis
from korvet.console.described_group import (
    DescribedGroup,
    LockRow,
    OffsetRow,
    QueueRow,
    describe,
    lag_of,
    offsets_of,
    read_queue,
)
from korvet.console.visit import PageError, Visit
from korvet.groups import lag_survey
from korvet.groups.description import CLASSIC, TopicPartition
from korvet.groups.lag import lag_call, read_groups, redis_ms
from korvet.groups.streams_group import name_tasks
from korvet.security.acl import Operation, ResourceType

HOUR_MS = 3_600_000
MAX_LINES = 500
"""Max partitions with a line of lag over time."""


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


class LagLine(msgspec.Struct, frozen=True):
    """The lag of a partition in the last hour, in records, at the times of the hour."""

    topic: str
    partition: int
    lags: list[int]


class LagOverTime(msgspec.Struct, frozen=True):
    """The lag of a group over time, in records. Empty until a sample is recorded."""

    times_ms: list[int]
    """A sample each minute for an hour, then one each quarter of an hour for a day."""
    totals: list[int]
    """The lag of all partitions at these times."""
    partitions: list[LagLine]
    """Partitions that had a lag in the last hour, in order."""
    hour: int
    """Samples of the last hour: the last ones of `times_ms`."""
    cut: int
    """The greatest lag that a partition without a row may have had, 0 if all have one."""


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
    evidence: list[Finding]
    """Why the group is stuck, or that it is not."""
    at_ms: int
    topics: list[str]
    """The topics of the group: those that can be reset."""
    history: LagOverTime | None
    """The recorded lag; null if the query has `history=0`."""


async def load(visit: Visit) -> GroupPage:
    """Return a group, named by the query's `id`."""
    name = group_id(visit)
    found = await described(visit, name)
    rows, left_out = await offsets_of(visit, found)
    is_share = found.type == "share"
    queue, locks = await read_queue(visit, name) if is_share else ([], [])
    return GroupPage(
        group=name,
        type=found.type,
        state=found.state,
        assignor=found.assignor if found.type != CLASSIC or found.state == "Stable" else "",
        epoch=found.epoch,
        members=[
            MemberRow(
                each.id,
                each.instance,
                each.client_id,
                each.client_host,
                len(each.partitions),
                each.last_heartbeat_ms,
                name_tasks(each.assigned.active),
                name_tasks(each.assigned.standby),
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
            None if visit.query("history") == "0" else await _history(visit, name, found.at_ms)
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
        now_ms = await redis_ms(visit.services.store)
        return DescribedGroup(
            id=name, type=CLASSIC, state="Empty", epoch=-1, assignor="", members=[], at_ms=now_ms
        )


async def _history(visit: Visit, group: str, at_ms: int) -> LagOverTime:
    """Return the recorded lag of a group, of topics that the user may see."""
    services = visit.services
    samples = await lag_survey.read_samples(services.store, services.keys, group)
    names = {topic for each in samples for topic, _ in each.lags}
    seen = {name for name in names if visit.context().may_describe(name, audit=False)}
    rows = [
        {partition: lag for partition, lag in each.lags.items() if partition[0] in seen}
        for each in samples
    ]
    times = [each.at_ms for each in samples]
    hour = sum(time > at_ms - HOUR_MS for time in times)
    return LagOverTime(
        times,
        [sum(row.values()) for row in rows],
        _lines(rows[len(rows) - hour :]),
        hour,
        max((each.cut for each in samples), default=0),
    )


def _lines(rows: Sequence[dict[TopicPartition, int]]) -> list[LagLine]:
    places = sorted({partition for row in rows for partition in row})
    return [
        LagLine(*partition, [row.get(partition, 0) for row in rows])
        for partition in places[:MAX_LINES]
    ]


GROUPS_ON_PAGE = 50
"""Groups on a page."""
MAX_LAGS = 2_000
"""Max partitions whose lag a page counts."""


class GroupRow(msgspec.Struct, frozen=True):
    """A group. `lag` counts records of all partitions that it committed or is assigned."""

    group: str
    type: str
    """`classic`, `consumer` (KIP-848) or `share` (KIP-932)."""
    state: str
    protocol_type: str
    members: int
    lag: int
    partitions: int
    """Partitions that it committed or is assigned."""
    topics: list[str]
    """Up to five of their topics."""
    is_counted: bool
    """False if the page has too many commits to count this group's lag."""
    grows: bool
    """Whether the lag is greater than some minutes ago."""


class Groups(msgspec.Struct, frozen=True):
    """A page of the groups, by name."""

    groups: Sequence[GroupRow]
    total: int
    page: int
    pages: int
    search: str
    is_sorted: bool
    """False if there are too many groups to sort more than this page."""


async def load_list(visit: Visit) -> Groups:
    """Return one page of the groups that the user may describe."""
    search = visit.query("q")
    names = [
        name
        for name in await visit.services.groups.registry.scan_all()
        if search.lower() in name.lower()
        and visit.may(Operation.DESCRIBE, ResourceType.GROUP, name)
    ]
    rows, page, pages, is_sorted = await visit.list_of(
        names, GROUPS_ON_PAGE, lambda shown: _rows(visit, shown)
    )
    return Groups(rows, len(names), page, pages, search, is_sorted)


async def _rows(visit: Visit, shown: Sequence[str]) -> list[GroupRow]:
    services = visit.services
    store = services.store
    earlier = await lag_survey.read_earlier(store, services.keys, shown)
    rows = []
    counted = 0
    for group in await read_groups(services.node, shown):
        commits = [
            row for row in group.commits if visit.context().may_describe(row[0].name, audit=False)
        ]
        is_counted = counted + len(commits) <= MAX_LAGS
        topics, partitions = sorted({row[0].name for row in commits}), len(commits)
        calls = [lag_call(*row) for row in commits] if is_counted else []
        replies = await store.run_many(calls)
        lag = sum(max(0, reply.records) for reply in replies if not reply.error)
        if group.type == "share" and is_counted:
            lag, topics, partitions = await lag_of(visit, group.name)
        counted += partitions
        rows.append(
            GroupRow(
                group.name,
                group.type,
                group.state,
                group.protocol_type,
                group.members,
                lag,
                partitions,
                topics[:5],
                is_counted,
                lag_survey.is_growing(lag, earlier.get(group.name)),
            )
        )
    return rows
