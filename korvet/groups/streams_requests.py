"""Validation of StreamsGroupHeartbeat requests (KIP-1071)."""

from korvet.base.errors import ErrorCode
from korvet.groups.modern import JOIN, GroupLimits, blank_field, invalid_epoch
from korvet.groups.streams_group import topic_names
from korvet.topics.names import check_topic_name
from korvet.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)

RESERVED = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def invalid_names(topology: Topology) -> str | None:
    """Return why the topology's topics cannot have their names, None if they can."""
    for name in sorted(topic_names(topology)):
        if name in RESERVED:
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
