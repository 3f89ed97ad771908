"""StreamsGroupHeartbeat. Renew a streams group member's session (KIP-1071).

Behaviour
- the broker assigns tasks (sticky): a member first revokes tasks, then its epoch advances, then it
  gets tasks that other members have revoked; a process has a task once
- streams.num.standby.replicas standby tasks for each task with a changelog, in other processes
- the first member brings the topology; the broker decides the partitions of repartition and
  changelog topics and creates them before it answers
- statuses: STALE_TOPOLOGY, MISSING_SOURCE_TOPICS, INCORRECTLY_PARTITIONED_TOPICS,
  MISSING_INTERNAL_TOPICS with the reason if they cannot be created, SHUTDOWN_APPLICATION,
  ASSIGNMENT_DELAYED for the initial rebalance delay and the assignment interval; no member has
  tasks while topics are missing or incorrectly partitioned
- while a group is not stable, members get a shorter heartbeat interval: 500 ms, or 5 ms per member;
  not while topics are missing: Kafka Streams gives up after two intervals
- INVALID_REQUEST for empty ids, a join without topology, timeout or empty task lists, a task that
  the topology does not have, and a topology that differs from that of the group's members; a group
  without members takes a new one, while Kafka 4.3 requires that the group is deleted
- STREAMS_INVALID_TOPOLOGY for a changelog topic with a partition count, names that are not valid or
  reserved, a subtopology without source topics, a repartition topic that no subtopology writes
- a static member (Kafka 4.4) that left with epoch -2 keeps its tasks until its session expires; the
  next member with its instance id gets them
- GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED,
  UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID
Versions
- v1 (Kafka 4.4) has an acceptable recovery lag, -1 here: tasks are not placed by their lag
Left out
- as in Kafka 4.3: patterns and warm-up tasks (INVALID_REQUEST); client tags are stored, but do not
  place standby tasks, and task offsets are not used
"""

import msgspec

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.groups.modern import (
    JOIN,
    GroupLimits,
    Heartbeat,
    blank_field,
    invalid_epoch,
    reason_of,
    unpack,
)
from korvet.groups.streams_group import (
    ACTIVE,
    STANDBY,
    WARMUP,
    StreamsGroupConfig,
    decode_endpoint,
    decode_missing,
    decode_tasks,
    encode_pairs,
    encode_tasks,
    encode_topology,
    streams_group_config,
    topic_names,
)
from korvet.scripts.call import Call
from korvet.scripts.calls.group import StreamsHeartbeatReply
from korvet.topics.lifecycle import KAFKAS_INTERNAL, check_topic_name
from korvet.wire.messages.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from korvet.wire.structs import TopicPartitions

MISSING_INTERNAL_TOPICS = 3
"""The status that says why internal topics could not be created."""
TOPOLOGY_DIFFERS = (
    "The topology differs from that of the group's members, or a task is not in it. To change the "
    "topology, stop all instances first."
)


async def streams_group_heartbeat(
    request: StreamsGroupHeartbeatRequest, context: Context
) -> StreamsGroupHeartbeatResponse:
    error, reason = _check(request, context)
    if error:
        return StreamsGroupHeartbeatResponse.of(error, reason)
    config = streams_group_config(context.services.configs, context.settings, request.group_id)
    topology = b""
    if request.topology is not None:
        try:
            topology = encode_topology(request.topology)
        except IndexError:
            reason = "A copartition group has an index beyond the list of its topics."
            return StreamsGroupHeartbeatResponse.of(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)
    reply, failure = await _heartbeat(request, topology, config, context)
    if reply.error:
        differs = reply.error == ErrorCode.INVALID_REQUEST
        return StreamsGroupHeartbeatResponse.of(
            ErrorCode(reply.error), TOPOLOGY_DIFFERS if differs else reason_of(reply.error)
        )
    if request.member_epoch < 0:
        return StreamsGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=reply.epoch, heartbeat_interval_ms=0
        )
    return _response(request, reply, config.heartbeat_interval_ms, failure)


async def _heartbeat(
    request: StreamsGroupHeartbeatRequest,
    topology: bytes,
    config: StreamsGroupConfig,
    context: Context,
) -> tuple[StreamsHeartbeatReply, str]:
    """Return the reply, and why internal topics could not be created: empty if none was missing."""
    limits, topics = GroupLimits.of(context.settings), context.topics
    heartbeat = Heartbeat(context.services.groups, topics, limits, lambda: topics.cached_version)
    endpoint, tags = request.user_endpoint, request.client_tags
    failure: str | None = None

    def make(is_registered: int) -> Call[StreamsHeartbeatReply]:
        return context.keys.group(request.group_id).streams_heartbeat(
            member=request.member_id,
            epoch=request.member_epoch,
            rack=request.rack_id or "",
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",
            session_ms=config.session_timeout_ms,
            rebalance_ms=request.rebalance_timeout_ms,
            interval_ms=config.assignment_interval_ms,
            delay_ms=config.initial_rebalance_delay_ms,
            replicas=config.num_standby_replicas,
            max_size=context.settings.integer("group.streams.max.size"),
            max_bytes=context.settings.integer("group.subscription.max.bytes"),
            is_registered=is_registered,
            topology_epoch=request.topology.epoch if request.topology is not None else -1,
            topology=topology,
            has_process=int(request.process_id is not None),
            process=request.process_id or "",
            endpoint=f"{endpoint.host}:{endpoint.port}" if endpoint is not None else "",
            has_tags=int(tags is not None),
            tags=encode_pairs((tag.key, tag.value) for tag in tags or ()),
            has_owned=int(request.active_tasks is not None),
            owned=encode_tasks(
                {
                    ACTIVE: request.active_tasks,
                    STANDBY: request.standby_tasks,
                    WARMUP: request.warmup_tasks,
                }
            ),
            endpoint_epoch=request.endpoint_information_epoch,
            shutdown=int(request.shutdown_application),
            topics_version=heartbeat.version,
            resolved=heartbeat.resolved,
            creates=int(failure is None),
            instance=request.instance_id or "",
            rows=heartbeat.rows,
        )

    async def create_missing(reply: StreamsHeartbeatReply) -> None:
        nonlocal failure
        if reply.missing:
            failure = await context.services.auto_creator.create_internal(
                decode_missing(reply.missing), context.may_create, context.charge_creation
            )

    only_renews = _only_renews(request)
    reply = await heartbeat.run(request, make, only_renews=only_renews, prepare=create_missing)
    return reply, failure or ""


def _check(request: StreamsGroupHeartbeatRequest, context: Context) -> tuple[ErrorCode, str | None]:
    """Return the error of a request that is invalid or not allowed whatever the group is."""
    if request.topology is not None:
        reason = invalid_names(request.topology)
        if reason:
            return ErrorCode.STREAMS_INVALID_TOPOLOGY, reason
        if not all(context.may_describe(name) for name in sorted(topic_names(request.topology))):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    error, reason = invalid_heartbeat(request)
    if not error:
        reason = exceeded_limit(request, GroupLimits.of(context.settings))
        error = ErrorCode.GROUP_MAX_SIZE_REACHED if reason else error
    return error, reason


def _only_renews(request: StreamsGroupHeartbeatRequest) -> bool:
    """Return whether the request only renews the session: then it may wait for a batch."""
    return (
        request.member_epoch > 0
        and request.active_tasks is None
        and not request.shutdown_application
    )


def _response(
    request: StreamsGroupHeartbeatRequest,
    reply: StreamsHeartbeatReply,
    interval_ms: int,
    failure: str,
) -> StreamsGroupHeartbeatResponse:
    response = StreamsGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=min(interval_ms, reply.next_heartbeat_ms or interval_ms),
        status=_statuses(reply.statuses, failure) or None,
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=_endpoints(reply.endpoints) if reply.has_endpoints else None,
    )
    if not reply.has_assignment:
        return response
    tasks = decode_tasks(reply.assignment)
    return msgspec.structs.replace(
        response,
        active_tasks=_tasks(tasks[ACTIVE]),
        standby_tasks=_tasks(tasks[STANDBY]),
        warmup_tasks=_tasks(tasks[WARMUP]),
    )


def _statuses(flat: list[bytes], failure: str) -> list[Status]:
    found = []
    for code, detail in zip(flat[::2], flat[1::2], strict=True):
        text = detail.decode()
        if int(code) == MISSING_INTERNAL_TOPICS and failure:
            text = f"{text}; {failure}"
        found.append(Status(status_code=int(code), status_detail=text))
    return found


def _tasks(by_subtopology: dict[str, list[int]]) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=sub, partitions=numbers) for sub, numbers in by_subtopology.items()
    ]


def _endpoints(flat: list[bytes]) -> list[EndpointToPartitions] | None:
    found = []
    for text, active, standby in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        endpoint = decode_endpoint(text.decode())
        assert endpoint is not None, "the script lists members with endpoints"
        found.append(
            EndpointToPartitions(
                user_endpoint=Endpoint(host=endpoint[0], port=endpoint[1]),
                active_partitions=_partitions(active),
                standby_partitions=_partitions(standby),
            )
        )
    return found


def _partitions(packed: bytes) -> list[TopicPartitions]:
    cells = unpack(packed)
    return [
        TopicPartitions(topic=topic, partitions=sorted(map(int, numbers.split(","))))
        for topic, numbers in zip(cells[::2], cells[1::2], strict=True)
    ]


def invalid_names(topology: Topology) -> str | None:
    """Return why the topology's topics cannot have their names, None if they can."""
    for name in sorted(topic_names(topology)):
        if name in KAFKAS_INTERNAL:
            return f"The topic {name} is Kafka's own: a topology cannot have it."
        reason = check_topic_name(name, reserved=True)
        if reason:
            return f"Topic {name!r}: {reason}"
    return None


def invalid_heartbeat(request: StreamsGroupHeartbeatRequest) -> tuple[ErrorCode, str | None]:
    """Return the error of a request that is invalid whatever the group is, and the reason.

    The names of its topics are checked before, as the client must be allowed to describe them.
    """
    reason = _unsupported(request) or blank_field(
        member_id=request.member_id,
        group_id=request.group_id,
        rack=request.rack_id,
        instance_id=request.instance_id,
    )
    if not reason:
        reason = _join_error(request) if request.member_epoch == JOIN else _epoch_error(request)
    if reason:
        return ErrorCode.INVALID_REQUEST, reason
    if request.topology is not None:
        reason = _invalid_topology(request.topology)
        if reason:
            return ErrorCode.STREAMS_INVALID_TOPOLOGY, reason
    return ErrorCode.NONE, None


def exceeded_limit(request: StreamsGroupHeartbeatRequest, limits: GroupLimits) -> str | None:
    """Return why the request exceeds the limits of groups by itself, None if it does not."""
    subtopologies = request.topology.subtopologies if request.topology is not None else []
    names = [name for sub in subtopologies for name in _names(sub)]
    lists = (*(request.active_tasks or ()), *(request.standby_tasks or ()))
    pairs = [tag for sub in subtopologies for info in _infos(sub) for tag in info.topic_configs]
    pairs += request.client_tags or []
    words = [word for pair in pairs for word in (pair.key, pair.value)]
    words += filter(None, (request.instance_id, request.rack_id, request.process_id))
    return limits.refusal(names, sum(len(row.partitions) for row in lists), *words)


def _infos(sub: Subtopology) -> list[TopicInfo]:
    return [*sub.repartition_source_topics, *sub.state_changelog_topics]


def _names(sub: Subtopology) -> list[str]:
    """Return a subtopology's id and all names of topics that it has, each as often as it has it."""
    grouped = [
        "" for group in sub.copartition_groups
        for _ in (*group.source_topics, *group.repartition_source_topics)
    ]  # fmt: skip
    topics = [*sub.source_topics, *sub.repartition_sink_topics, *(row.name for row in _infos(sub))]
    return [sub.subtopology_id, *topics, *grouped]


def _unsupported(request: StreamsGroupHeartbeatRequest) -> str | None:
    """Return what the request uses that streams groups do not have, None if nothing."""
    subtopologies = request.topology.subtopologies if request.topology is not None else []
    if request.warmup_tasks:
        return "Warm-up tasks are not supported in streams groups."
    if any(sub.source_topic_regex for sub in subtopologies):
        return "Patterns for source topics are not supported in streams groups."
    return None


def _join_error(request: StreamsGroupHeartbeatRequest) -> str | None:
    for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        if tasks is None or tasks:
            return "The lists of tasks must be empty, and not null, when joining."
    if request.rebalance_timeout_ms == -1:
        return "rebalance_timeout_ms is required when joining."
    if request.topology is None:
        return "A topology is required when joining."
    if request.topology.epoch < 0:
        return "The topology epoch must not be negative."
    return None


def _epoch_error(request: StreamsGroupHeartbeatRequest) -> str | None:
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if request.topology is not None:
        return "A topology can only be given when joining."
    if len({rows is None for rows in tasks}) > 1:
        return "If one list of tasks is given, all must be."
    return invalid_epoch(request.member_epoch, request.instance_id)


def _invalid_topology(topology: Topology) -> str | None:
    """Return why the topology is invalid whatever topics exist, None if it is not."""
    for sub in topology.subtopologies:
        for info in sub.state_changelog_topics:
            if info.partitions:
                return (
                    f"The changelog topic {info.name} must have no partition count: the broker "
                    "decides it."
                )
    if len({sub.subtopology_id for sub in topology.subtopologies}) < len(topology.subtopologies):
        return "Subtopology ids must differ."
    return None
