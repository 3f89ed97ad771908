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

from korvet.context import Context
from korvet.groups import description
from korvet.groups.description import STREAMS, Group, describe_each
from korvet.groups.streams_group import Info
from korvet.security.acl import ResourceType
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

NOT_STORED = 1
"""The status of a topology description that the broker does not have."""


async def streams_group_describe(
    request: StreamsGroupDescribeRequest, context: Context
) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=await describe_each(
            context.services.groups,
            STREAMS,
            request.group_ids,
            context.may_describe,
            partial(_row, request=request, context=context),
            DescribedGroup,
        )
    )


def _row(group: Group, request: StreamsGroupDescribeRequest, context: Context) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_member(member) for member in group.members],
        authorized_operations=context.authorized_operations(
            ResourceType.GROUP, group.id, asked=request.include_authorized_operations
        ),
        topology_description_status=NOT_STORED if request.include_topology_description else 0,
        assignor_name=group.assignor,
    )


def _topology(group: Group) -> Topology:
    def infos(rows: list[Info]) -> list[TopicInfo]:
        return [_info(row, group.internal_partitions) for row in rows]

    return Topology(
        epoch=group.topology_epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=sub.id,
                source_topics=sub.source_topics,
                repartition_sink_topics=sub.sink_topics,
                state_changelog_topics=infos(sub.changelog_topics),
                repartition_source_topics=infos(sub.repartition_topics),
            )
            for sub in group.topology
        ],
    )


def _info(info: Info, partitions: dict[str, int]) -> TopicInfo:
    return TopicInfo(
        name=info.name,
        partitions=partitions.get(info.name, info.partitions),
        replication_factor=info.replication_factor,
        topic_configs=[KeyValue(key=key, value=value) for key, value in info.configs.items()],
    )


def _member(member: description.Member) -> Member:
    endpoint = member.endpoint
    return Member(
        member_id=member.id,
        member_epoch=member.epoch,
        instance_id=member.instance,
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process,
        user_endpoint=Endpoint(host=endpoint[0], port=endpoint[1]) if endpoint else None,
        client_tags=[KeyValue(key=key, value=value) for key, value in member.tags],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(member.target),
    )


def _assignment(tasks: description.Assignment) -> Assignment:
    active, standby, warmup = (
        [TaskIds(subtopology_id=sub, partitions=rows) for sub, rows in kind.items()]
        for kind in (tasks.active, tasks.standby, tasks.warmup)
    )
    return Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
