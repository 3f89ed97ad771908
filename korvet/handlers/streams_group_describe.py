"""StreamsGroupDescribe. State and members of streams groups (KIP-1071).

Behaviour
- INVALID_GROUP_ID for an empty id, INVALID_REQUEST for one that is listed more than ten times
- TOPIC_AUTHORIZATION_FAILED for a group with a topic that the client may not describe
- GROUP_ID_NOT_FOUND for a group that does not exist or is of another type
- states: Empty, NotReady, Assigning, Reconciling, Stable
- internal topics have 0 partitions while source topics are missing or not copartitioned
Versions
- v1 has the assignor's name; a topology description (KIP-1331) is not stored, as in a Kafka without
  a plugin for it
"""

from functools import partial

from korvet.calls.group import StreamsDescribeReply
from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.groups.describe import describe_each, require_topics
from korvet.groups.streams_group import (
    ACTIVE,
    CELLS,
    STANDBY,
    WARMUP,
    Info,
    decode_endpoint,
    decode_pairs,
    decode_tasks,
    decode_topology,
)
from korvet.groups.streams_group import Subtopology as StoredSubtopology
from korvet.security.acl import ResourceType
from korvet.topics.lifecycle import Refused
from korvet.wire.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    Topology,
)
from korvet.wire.messages.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TopicInfo

ASSIGNOR = "sticky"
"""Kafka's name of the assignor."""
NOT_STORED = 1
"""The status of a topology description that the broker does not have."""


async def streams_group_describe(
    request: StreamsGroupDescribeRequest, context: Context
) -> StreamsGroupDescribeResponse:
    describe = partial(_group, request=request, context=context)
    return StreamsGroupDescribeResponse(
        groups=await describe_each(request.group_ids, describe, DescribedGroup)
    )


async def _group(
    group_id: str, request: StreamsGroupDescribeRequest, context: Context
) -> DescribedGroup:
    reply = await context.services.groups.run(
        group_id, lambda _: context.keys.group(group_id).streams_describe()
    )
    if reply.error:
        raise Refused(ErrorCode(reply.error), f"Streams group {group_id} not found.")
    stored = decode_topology(reply.topology)
    require_topics((name for sub in stored for name in _names(sub)), context.may_describe)
    rows = reply.members
    return DescribedGroup(
        group_id=group_id,
        group_state=reply.state.decode(),
        group_epoch=reply.epoch,
        assignment_epoch=reply.assignment_epoch,
        topology=_topology(reply, stored),
        members=[_member(rows[at : at + CELLS]) for at in range(0, len(rows), CELLS)],
        authorized_operations=context.authorized_operations(
            ResourceType.GROUP, group_id, asked=request.include_authorized_operations
        ),
        topology_description_status=NOT_STORED if request.include_topology_description else 0,
        assignor_name=ASSIGNOR,
    )


def _names(sub: StoredSubtopology) -> list[str]:
    infos = (*sub.repartition_topics, *sub.changelog_topics)
    return [*sub.source_topics, *sub.sink_topics, *(info.name for info in infos)]


def _topology(reply: StreamsDescribeReply, stored: list[StoredSubtopology]) -> Topology:
    flat = [cell.decode() for cell in reply.partitions]
    partitions = dict(zip(flat[::2], map(int, flat[1::2]), strict=True))
    return Topology(
        epoch=reply.topology_epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=sub.id,
                source_topics=sub.source_topics,
                repartition_sink_topics=sub.sink_topics,
                state_changelog_topics=[_info(each, partitions) for each in sub.changelog_topics],
                repartition_source_topics=[
                    _info(each, partitions) for each in sub.repartition_topics
                ],
            )
            for sub in stored
        ],
    )


def _info(info: Info, partitions: dict[str, int]) -> TopicInfo:
    return TopicInfo(
        name=info.name,
        partitions=partitions.get(info.name, info.partitions),
        replication_factor=info.replication_factor,
        topic_configs=[KeyValue(key=key, value=value) for key, value in info.configs.items()],
    )


def _member(row: list[bytes]) -> Member:
    member, instance, rack, client_id, host, epoch, topology_epoch, process, *rest = row
    endpoint, tags, *tasks = rest
    place = decode_endpoint(endpoint.decode())
    return Member(
        member_id=member.decode(),
        member_epoch=int(epoch),
        instance_id=instance.decode() or None,
        rack_id=rack.decode() or None,
        client_id=client_id.decode(),
        client_host=host.decode(),
        topology_epoch=int(topology_epoch),
        process_id=process.decode(),
        user_endpoint=Endpoint(host=place[0], port=place[1]) if place else None,
        client_tags=[KeyValue(key=key, value=value) for key, value in decode_pairs(tags)],
        assignment=_assignment(tasks[0]),
        target_assignment=_assignment(tasks[1]),
    )


def _assignment(encoded: bytes) -> Assignment:
    tasks = decode_tasks(encoded)
    active, standby, warmup = (
        [TaskIds(subtopology_id=sub, partitions=rows) for sub, rows in tasks[kind].items()]
        for kind in (ACTIVE, STANDBY, WARMUP)
    )
    return Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
