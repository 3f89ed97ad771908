"""The lag of groups on topics, with limits on how many commits a page reads.

A lag counts records in every offset mode, as `korvet groups describe` does. That of a share group
counts what it has not finished.
"""

from collections.abc import Sequence

import msgspec

from korvet.base.bounded import chunks
from korvet.console.visit import Visit
from korvet.groups.description import SHARE
from korvet.groups.lag import GroupPositions, lag_call, read_groups
from korvet.groups.share_offsets import describe_partitions, share_places
from korvet.security.acl import Operation, ResourceType
from korvet.topics.table import Topic

MAX_GROUPS = 200
"""Max groups whose commits a page reads."""
GROUPS_AT_ONCE = 50
MAX_LAGS = 1_000
"""Max partitions of groups whose lag a page counts."""


class GroupLag(msgspec.Struct, frozen=True):
    """A group's lag on a topic: in records of the partitions that it committed or is assigned."""

    group: str
    lag: int
    partitions: int
    """Partitions with a commit or a member, or with state of a share group."""
    newest_commit_ms: int
    """Time of the last commit, -1 if unknown."""


class TopicLags(msgspec.Struct, frozen=True):
    """The groups that committed offsets of topics, the slowest first."""

    by_topic: dict[str, list[GroupLag]]
    is_complete: bool
    """False if there are more groups or commits than a page reads."""


async def lags_of(visit: Visit, topics: Sequence[Topic]) -> TopicLags:
    """Return the lag of groups on these topics."""
    services = visit.services
    store = services.store
    names = (await services.groups.registry.scan_all())[: MAX_GROUPS + 1]
    names = [name for name in names if visit.may(Operation.DESCRIBE, ResourceType.GROUP, name)]
    is_complete = len(names) <= MAX_GROUPS
    names = names[:MAX_GROUPS]
    if not topics or not names:
        return TopicLags({}, is_complete)
    wanted = {topic.id for topic in topics}
    groups: list[GroupPositions] = []
    for some in chunks(names, GROUPS_AT_ONCE):
        groups += await read_groups(services.node, some)
    found = [(group.name, *row) for group in groups for row in group.commits if row[0].id in wanted]
    replies = await store.run_many(lag_call(*row[1:]) for row in found[:MAX_LAGS])
    lags = [
        (name, topic.name, reply.records, commit.time_ms)
        for (name, topic, _, commit), reply in zip(found, replies, strict=False)
    ]
    left = MAX_LAGS
    for name in (group.name for group in groups if group.type == SHARE):
        if left < 0:
            break
        places = await share_places(services.node, name)
        places = [partition for partition in places if partition[0].id in wanted]
        parts = await describe_partitions(store, name, places[:left])
        lags += [(name, part.topic.name, part.lag, -1) for part in parts if part.start >= 0]
        left -= len(places)
    sums: dict[str, dict[str, list[int]]] = {}
    for name, topic_name, lag, time_ms in lags:
        row = sums.setdefault(topic_name, {}).setdefault(name, [0, 0, -1])
        row[0] += max(0, lag)
        row[1] += 1
        row[2] = max(row[2], time_ms)
    return TopicLags(
        {
            topic: sorted(
                (GroupLag(name, *row) for name, row in by_group.items()),
                key=lambda lag: (-lag.lag, lag.group),
            )
            for topic, by_group in sums.items()
        },
        is_complete and left >= 0 and len(found) <= MAX_LAGS,
    )
