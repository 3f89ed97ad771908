"""Read the list of groups."""

import msgspec

from korvet.console.queues import lag_of
from korvet.console.visit import Visit
from korvet.groups.lag import lag_call, read_groups
from korvet.security.acl import Operation, ResourceType

PAGE = 50
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


class Groups(msgspec.Struct, frozen=True):
    """A page of the groups, by name."""

    groups: list[GroupRow]
    total: int
    page: int
    pages: int
    search: str


async def load(visit: Visit) -> Groups:
    """Return one page of the groups that the user may describe."""
    search = visit.query("q")
    names = [
        name
        for name in await visit.services.groups.registry.scan_all()
        if search.lower() in name.lower()
        and visit.may(Operation.DESCRIBE, ResourceType.GROUP, name)
    ]
    shown, page, pages = visit.page_of(names, PAGE)
    services = visit.services
    store = services.store
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
            )
        )
    return Groups(rows, len(names), page, pages, search)
