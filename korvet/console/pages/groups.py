"""Read the list of groups."""

import msgspec

from korvet.console.queues import lag_of
from korvet.console.visit import Visit
from korvet.groups.offset_commit import parse_commit, parse_field
from korvet.scripts import log as log_scripts
from korvet.scripts.call import Call
from korvet.security.acl import Operation, ResourceType

PAGE = 50
"""Groups on a page."""
MAX_LAGS = 2_000
"""Max commits whose lag a page counts."""
_FIELDS = ("type", "state", "protocol_type", "size")


class GroupRow(msgspec.Struct, frozen=True):
    """A group. `lag` counts records of all partitions that it committed."""

    group: str
    type: str
    """`classic`, `consumer` (KIP-848) or `share` (KIP-932)."""
    state: str
    protocol_type: str
    members: int
    lag: int
    partitions: int
    """Partitions with a committed offset."""
    topics: list[str]
    """Up to five of the topics that it committed."""
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
    store, keys = visit.services.store, visit.services.keys
    heads = [store.submit_command("HMGET", keys.group(name).group, *_FIELDS) for name in shown]
    offsets = [store.submit_command("HGETALL", keys.group_offsets(name)) for name in shown]
    rows = []
    counted = 0
    for name, head, flat in zip(shown, heads, offsets, strict=True):
        kind, state, protocol, size = await head
        commits = await flat
        if kind is None:
            continue
        is_counted = counted + len(commits) // 2 <= MAX_LAGS
        topics, calls = await _calls(visit, commits)
        partitions = len(calls)
        replies = await store.run_many(calls) if is_counted else []
        lag = sum(max(0, reply.records) for reply in replies if not reply.error)
        if kind == b"share" and is_counted:
            lag, topics, partitions = await lag_of(visit, name)
        counted += partitions
        rows.append(
            GroupRow(
                name,
                kind.decode(),
                state.decode(),
                (protocol or b"").decode(),
                int(size or 0),
                lag,
                partitions,
                topics[:5],
                is_counted,
            )
        )
    return Groups(rows, len(names), page, pages, search)


async def _calls(
    visit: Visit, flat: list[bytes]
) -> tuple[list[str], list[Call[log_scripts.LagReply]]]:
    """Return the topics of commits, and the calls that count their lag."""
    services, topics = visit.services, dict[str, None]()
    calls = []
    for field, raw in zip(flat[::2], flat[1::2], strict=True):
        found, commit = parse_field(field), parse_commit(raw)
        topic = await services.topics.get(found[0]) if found else None
        if found is None or commit is None or topic is None:
            continue
        if commit.topic_id in ("", topic.id) and visit.context().may_describe(
            topic.name, audit=False
        ):
            topics[topic.name] = None
            calls.append(
                log_scripts.lag(
                    services.keys,
                    topic.name,
                    found[1],
                    topic_id=topic.id,
                    offset=max(commit.offset, 0),
                )
            )
    return sorted(topics), calls
