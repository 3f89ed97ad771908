"""Read a group of any type as the pages show it: with the members' last heartbeats."""

from collections.abc import Sequence

from msgspec.structs import asdict

from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.console.visit import PageError, Visit, check
from korvet.groups import description
from korvet.groups.description import CLASSIC, TopicPartition, describe_any, require_topics
from korvet.security.acl import Operation, ResourceType
from korvet.topics.lifecycle import Refused


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
    now_ms = await redis_time_ms(visit)
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


async def redis_time_ms(visit: Visit) -> int:
    """Return the time of Redis's clock."""
    seconds, micros = await visit.services.store.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


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
