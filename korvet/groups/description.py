"""Groups of all types as the scripts describe them: their replies are decoded here only."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from uuid import UUID

import msgspec

from korvet.base.bounded import TOO_OFTEN, chunks, gather_named
from korvet.base.errors import ErrorCode
from korvet.groups.assignment import assigned_partitions, decode_assignment, subscribed_topics
from korvet.groups.coordinator import GroupCoordinator
from korvet.groups.modern import unpack
from korvet.groups.streams_group import (
    ACTIVE,
    STANDBY,
    WARMUP,
    Subtopology,
    decode_endpoint,
    decode_pairs,
    decode_tasks,
    decode_topology,
    input_partitions,
    input_topics,
)
from korvet.topics.lifecycle import Refused
from korvet.topics.table import TopicTable
from korvet.wire.messages import consumer_group_describe as described

R = TypeVar("R")
CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
_ASSIGNORS = {SHARE: "simple", STREAMS: "sticky"}
_WORDS = {CONSUMER: "Group", SHARE: "Share group", STREAMS: "Streams group"}
Numbers = dict[str, list[int]]
TopicPartition = tuple[str, int]
"""A topic and a partition."""


class Assignment(msgspec.Struct, frozen=True):
    """The assignment of a member; what the type of its group does not have is empty."""

    partitions: Numbers = {}
    """Topic id to partitions, of a consumer or a share group."""
    active: Numbers = {}
    """Subtopology to tasks, of a streams group."""
    standby: Numbers = {}
    warmup: Numbers = {}
    encoded: bytes = b""
    """As the leader of a classic group encoded it."""

    @classmethod
    def of(cls, kind: str, raw: bytes) -> "Assignment":
        """Decode the assignment of a member of a group of that type."""
        if kind == CLASSIC:
            return cls(encoded=raw)
        if kind == STREAMS:
            tasks = decode_tasks(raw)
            return cls(active=tasks[ACTIVE], standby=tasks[STANDBY], warmup=tasks[WARMUP])
        return cls(decode_assignment(raw))


class Member(msgspec.Struct, frozen=True):
    """A member; what the type of its group does not have is empty or -1."""

    id: str
    instance: str | None
    client_id: str
    client_host: str
    assigned: Assignment
    metadata: bytes = b""
    """Of a classic group, for the chosen protocol."""
    rack: str | None = None
    epoch: int = -1
    names: list[str] = []
    """Topics that it subscribes to by name."""
    regex: str = ""
    target: Assignment = Assignment()
    topology_epoch: int = -1
    process: str = ""
    endpoint: tuple[str, int] | None = None
    tags: list[tuple[str, str]] = []


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group; what its type does not have is empty or -1."""

    id: str
    type: str
    state: str
    epoch: int
    """The group epoch, or the generation of a classic group."""
    assignor: str
    """The assignor, or the chosen protocol of a classic group."""
    members: Sequence[Member]
    protocol_type: str = ""
    assignment_epoch: int = -1
    topology_epoch: int = -1
    topology: list[Subtopology] = []
    internal_partitions: dict[str, int] = {}
    """Internal topics to the partitions that the broker decided for them."""
    detail: str = ""
    """What keeps a streams group from an assignment, empty for nothing."""

    def topics(self, topics: TopicTable) -> set[str]:
        """Return the topics that a client must have the right to describe, as last read."""
        found = {name for sub in self.topology for name in sub.all_topics()}
        for member in self.members:
            is_share = self.type == SHARE
            found.update(() if is_share else member.names)
            for one in (member.assigned,) if is_share else (member.assigned, member.target):
                found.update(filter(None, (topic_name(topics, each) for each in one.partitions)))
        return found

    def subscribed(self) -> set[str] | None:
        """Return the topics that members subscribe to by name, or that their tasks read.

        None if the subscription of a classic member is malformed: it may be any topic.
        """
        if self.type == CLASSIC:
            is_consumer = self.protocol_type == CONSUMER
            return subscribed_topics(row.metadata for row in self.members if is_consumer)
        inputs = input_topics(self.topology).values() if self.members else ()
        return {name for names in (*inputs, *(row.names for row in self.members)) for name in names}

    async def partitions(self, topics: TopicTable) -> list[list[TopicPartition]]:
        """Return the partitions that each member reads."""
        assigned = [member.assigned for member in self.members]
        return await find_partitions(topics, self.protocol_type, self.topology, assigned)


async def find_partitions(
    topics: TopicTable,
    protocol_type: str,
    topology: Iterable[Subtopology],
    assignments: Iterable[Assignment],
) -> list[list[TopicPartition]]:
    """Return the partitions that members with these assignments read.

    Topics of a classic group may not exist. Its assignments can be read if its protocol type is
    "consumer": Connect's have tasks.
    """
    await topics.count()  # reads the table again if it is old
    inputs = input_topics(topology)
    known = {name: await topics.get(name) for names in inputs.values() for name in names}
    counts = {name: topic.partitions for name, topic in known.items() if topic is not None}
    found = []
    for each in assignments:
        places = input_partitions(inputs, each.active, counts)
        if protocol_type == CONSUMER:
            places += assigned_partitions(each.encoded)
        for topic_id, numbers in each.partitions.items():
            if name := topic_name(topics, topic_id):
                places += ((name, number) for number in numbers)
        found.append(places)
    return found


def topic_name(topics: TopicTable, topic_id: str) -> str:
    """Return the name of a topic as last read, empty for one that is deleted."""
    topic = topics.last_known(None, UUID(hex=topic_id))
    return topic.name if topic is not None else ""


def described_assignment(
    assigned: Assignment, topics: TopicTable, *, keeps_deleted: bool
) -> described.Assignment:
    """Return the assignment in a response; topics that are deleted have no name."""
    names = {topic_id: topic_name(topics, topic_id) for topic_id in assigned.partitions}
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(
                topic_id=UUID(hex=topic_id), topic_name=names[topic_id], partitions=numbers
            )
            for topic_id, numbers in assigned.partitions.items()
            if keeps_deleted or names[topic_id]
        ]
    )


async def describe(groups: GroupCoordinator, group_id: str, *, always: bool = False) -> Group:
    """Return a group of any type, with its members if it is a classic one. Raises Refused.

    Metadata and assignments of members are those of a Stable group only, unless `always`.
    """
    keys = groups.node.keys.group(group_id)
    reply = await groups.run(group_id, lambda _: keys.describe(full=2 if always else 1))
    _check(reply.error, f"Group {group_id}")
    return Group(
        id=group_id,
        type=reply.type.decode(),
        state=reply.state.decode(),
        epoch=reply.generation,
        assignor=reply.protocol.decode(),
        members=[_classic_member(*row) for row in chunks(reply.members, 6)],
        protocol_type=reply.protocol_type.decode(),
    )


async def describe_modern(groups: GroupCoordinator, group_id: str, kind: str) -> Group:
    """Return a consumer, share or streams group. Raises Refused."""
    keys = groups.node.keys.group(group_id)
    reply = await groups.run(group_id, lambda _: keys.modern_describe(type=kind))
    _check(reply.error, f"{_WORDS[kind]} {group_id}")
    counts = chunks(reply.partitions, 2)
    return Group(
        id=group_id,
        type=kind,
        state=reply.state.decode(),
        epoch=reply.epoch,
        assignor=_ASSIGNORS.get(kind) or reply.assignor.decode(),
        members=[_modern_member(kind, *row) for row in chunks(reply.members, 14)],
        assignment_epoch=reply.assignment_epoch,
        topology_epoch=reply.topology_epoch,
        topology=decode_topology(reply.topology),
        internal_partitions={name.decode(): int(count) for name, count in counts},
        detail=reply.detail.decode(),
    )


async def describe_any(groups: GroupCoordinator, group_id: str, *, always: bool = False) -> Group:
    """Return a group of any type with its members. Raises Refused."""
    group = await describe(groups, group_id, always=always)
    return await describe_modern(groups, group_id, group.type) if group.type in _WORDS else group


def _check(error: int, subject: str) -> None:
    if error:
        raise Refused(ErrorCode(error), f"{subject} not found.")


def _classic_member(
    member: bytes, instance: bytes, client_id: bytes, host: bytes, metadata: bytes, assigned: bytes
) -> Member:
    names = (member.decode(), instance.decode() or None, client_id.decode(), host.decode())
    return Member(*names, Assignment.of(CLASSIC, assigned), metadata=metadata)


def _modern_member(kind: str, *row: bytes) -> Member:
    member, instance, rack, client_id, host, epoch, *words = row
    names, regex, topology_epoch, process, endpoint, tags, assigned, target = words
    return Member(
        member.decode(),
        instance.decode() or None,
        client_id.decode(),
        host.decode(),
        Assignment.of(kind, assigned),
        rack=rack.decode() or None,
        epoch=int(epoch),
        names=unpack(names),
        regex=regex.decode(),
        target=Assignment.of(kind, target),
        topology_epoch=int(topology_epoch),
        process=process.decode(),
        endpoint=decode_endpoint(endpoint.decode()),
        tags=decode_pairs(tags),
    )


async def describe_each(
    groups: GroupCoordinator,
    kind: str,
    group_ids: Sequence[str],
    may_describe: Callable[[str], bool],
    row: Callable[[Group], R],
    refusal: Callable[..., R],
) -> list[R]:
    """Return the rows of a response: of groups of that type, or with the error of a group."""

    def refused(group_id: str, error: ErrorCode, reason: str) -> R:
        return refusal(error_code=error, error_message=reason or None, group_id=group_id)

    async def one(group_id: str) -> R:
        if not group_id:
            return refused(group_id, ErrorCode.INVALID_GROUP_ID, "")
        try:
            group = await describe_modern(groups, group_id, kind)
            await require_topics(group, groups.node.topics, may_describe)
        except Refused as error:
            return refused(group_id, error.error, error.reason)
        return row(group)

    return await gather_named(
        one, lambda group_id: refused(group_id, ErrorCode.INVALID_REQUEST, TOO_OFTEN), group_ids
    )


async def require_topics(
    group: Group, topics: TopicTable, may_describe: Callable[[str], bool]
) -> None:
    """Raise Refused unless the client may describe all topics of a group."""
    await topics.count()  # reads the table again if it is old
    if not all(map(may_describe, group.topics(topics))):
        raise Refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has topics that the client is not authorized to describe.",
        )
