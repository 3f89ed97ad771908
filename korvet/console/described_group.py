"""Read a group of any type: its state, members, assignments and last heartbeats."""

from typing import Any

import msgspec

from korvet.console.visit import PageError, Visit, check_row
from korvet.errors import ErrorCode
from korvet.groups.consumer_protocol import assigned_partitions, subscribed_topics
from korvet.groups.streams_group import decode_topology, input_partitions, input_topics, name_tasks
from korvet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.share_group_describe import ShareGroupDescribeRequest
from korvet.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

Place = tuple[str, int]
"""A topic and a partition."""


class Member(msgspec.Struct, frozen=True):
    """A member of a group."""

    id: str
    instance: str | None
    client_id: str
    host: str
    subscribed: list[str]
    pattern: str | None
    """The regular expression of topics that it subscribes to."""
    partitions: list[Place]
    """Those that it is assigned; of a streams group those that its active tasks read."""
    deadline_ms: int
    """Time at which the broker removes it without another heartbeat, -1 if unknown."""
    last_heartbeat_ms: int
    """Time of its last heartbeat, -1 if unknown."""
    active: list[str] = []
    """Tasks of a streams group, such as `0_1`."""
    standby: list[str] = []


class DescribedGroup(msgspec.Struct, frozen=True):
    """A group with its members."""

    group: str
    type: str
    state: str
    protocol: str
    """The assignor."""
    epoch: int
    """The generation of a classic group, or the epoch."""
    members: list[Member]
    at_ms: int
    """Redis's clock."""
    reason: str = ""
    """What keeps a streams group from an assignment, empty for nothing."""


async def describe(visit: Visit, name: str) -> DescribedGroup:
    """Return the group. Raises PageError if there is none."""
    store, keys = visit.services.store, visit.services.keys.group(name)
    kind = await store.command("HGET", keys.group, "type")
    moments = await store.command("ZRANGE", keys.deadlines, 0, -1, "WITHSCORES")
    deadlines = {
        member.decode("utf-8", "replace"): int(float(moment))
        for member, moment in zip(moments[::2], moments[1::2], strict=True)
        if member != b":clock"
    }
    now_ms = await redis_time_ms(visit)
    if kind in (b"consumer", b"share"):
        return await _newer(visit, name, kind.decode(), deadlines, now_ms)
    if kind == b"streams":
        return await _streams(visit, name, deadlines, now_ms)
    return await _classic(visit, name, deadlines, now_ms)


def _check(found: Any, name: str) -> None:
    """Raise PageError if the response has no such group, or another error."""
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == "Dead":
        raise PageError(404, f"There is no group {name!r}.")
    check_row(found)


async def redis_time_ms(visit: Visit) -> int:
    """Return the time of Redis's clock."""
    seconds, micros = await visit.services.store.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


async def _classic(
    visit: Visit, name: str, deadlines: dict[str, int], now_ms: int
) -> DescribedGroup:
    answer = await visit.call(DescribeGroupsRequest(groups=[name]))
    (found,) = answer.groups
    _check(found, name)
    sessions = await _sessions(visit, name, [member.member_id for member in found.members])
    is_consumer = found.protocol_type == "consumer"
    members = [
        Member(
            row.member_id,
            row.group_instance_id,
            row.client_id,
            row.client_host,
            sorted(subscribed_topics([row.member_metadata]) or ()) if is_consumer else [],
            None,
            assigned_partitions(row.member_assignment) if is_consumer else [],
            *_heartbeat(deadlines.get(row.member_id, -1), session, now_ms),
        )
        for row, session in zip(found.members, sessions, strict=True)
    ]
    head = await visit.services.store.command(
        "HGET", visit.services.keys.group(name).group, "generation"
    )
    return DescribedGroup(
        name, "classic", found.group_state, found.protocol_data, int(head or -1), members, now_ms
    )


async def _sessions(visit: Visit, name: str, members: list[str]) -> list[int]:
    """Return the members' session timeouts in ms, 0 if unknown."""
    if not members:
        return []
    key = visit.services.keys.group(name).members
    rows = await visit.services.store.command("HMGET", key, *members)
    words = [(row or b"").split(b" ")[0] for row in rows]
    return [int(word) if word.isdigit() else 0 for word in words]


async def _newer(
    visit: Visit, name: str, kind: str, deadlines: dict[str, int], now_ms: int
) -> DescribedGroup:
    """Return a group of KIP-848 or KIP-932."""
    api = ShareGroupDescribeRequest if kind == "share" else ConsumerGroupDescribeRequest
    request = api(group_ids=[name], include_authorized_operations=False)
    (found,) = (await visit.call(request)).groups
    _check(found, name)
    session = _session_ms(visit, name, kind)
    members = [
        Member(
            row.member_id,
            getattr(row, "instance_id", None),
            row.client_id,
            row.client_host,
            list(row.subscribed_topic_names),
            getattr(row, "subscribed_topic_regex", None) or None,
            [
                (topic.topic_name, number)
                for topic in row.assignment.topic_partitions
                for number in topic.partitions
            ],
            *_heartbeat(deadlines.get(f"m:{row.member_id}", -1), session, now_ms),
        )
        for row in found.members
    ]
    return DescribedGroup(
        name, kind, found.group_state, found.assignor_name, found.group_epoch, members, now_ms
    )


def _session_ms(visit: Visit, name: str, kind: str) -> int:
    """Return the session timeout of a group of one of the newer types."""
    configs = visit.services.configs.group(name, visit.services.settings)
    return int(configs[f"{kind}.session.timeout.ms"].value or 0)


async def _streams(
    visit: Visit, name: str, deadlines: dict[str, int], now_ms: int
) -> DescribedGroup:
    """Return a streams group (KIP-1071)."""
    request = StreamsGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    (found,) = (await visit.call(request)).groups
    _check(found, name)
    services = visit.services
    stored = await services.groups.run(name, lambda _: services.keys.group(name).streams_describe())
    inputs = input_topics(decode_topology(stored.topology))
    counts = {topic.name: topic.partitions for topic in await services.topics.all()}
    session = _session_ms(visit, name, "streams")
    members = []
    for row in found.members:
        active, standby = (
            {each.subtopology_id: each.partitions for each in tasks}
            for tasks in (row.assignment.active_tasks, row.assignment.standby_tasks)
        )
        members.append(
            Member(
                row.member_id,
                row.instance_id,
                row.client_id,
                row.client_host,
                sorted({topic for topics in inputs.values() for topic in topics}),
                None,
                input_partitions(inputs, active, counts),
                *_heartbeat(deadlines.get(f"m:{row.member_id}", -1), session, now_ms),
                active=name_tasks(active),
                standby=name_tasks(standby),
            )
        )
    return DescribedGroup(
        name,
        "streams",
        found.group_state,
        "sticky",
        found.group_epoch,
        members,
        now_ms,
        stored.detail.decode(),
    )


def _heartbeat(deadline_ms: int, session_ms: int, now_ms: int) -> tuple[int, int]:
    """Return the member's deadline, and the time of its last heartbeat."""
    if deadline_ms < 0 or not session_ms:
        return deadline_ms, -1
    # Deadlines of the newer protocols are rounded up.
    return deadline_ms, min(deadline_ms - session_ms, now_ms)
