"""DeleteTopics. Delete topics with their data and committed offsets.

Behaviour
- TOPIC_AUTHORIZATION_FAILED for a topic that the client may not delete; without DESCRIBE also for
  one that does not exist, and without the name of one that is given by its id
- checked in this order: TOPIC_DELETION_DISABLED, INVALID_REQUEST (named twice, or by name and id),
  UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
- on a single Redis one script call deletes streams, other keys, Redis groups and committed offsets;
  above 1,000 partitions or 5,000 groups, and on Redis Cluster, the deletion runs in steps
Versions
- v1 throttle_time_ms, v5 error messages, v6 topics by id
"""

from collections import Counter

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.security.acl import CLUSTER_NAME, Operation, ResourceType
from korvet.topics.lifecycle import Refused, delete_topic, invalid_request, outcome, unknown_topic
from korvet.topics.table import Topic, TopicTable
from korvet.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from korvet.wire.schema import ZERO_UUID


async def delete_topics(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    times = Counter((state.name, state.topic_id) for state in wanted)
    found = [
        (state, await _find(state, context.topics))
        for state in {(state.name, state.topic_id): state for state in wanted}.values()
    ]
    both = {topic.uuid for state, topic in found if topic and state.name is None}
    both &= {topic.uuid for state, topic in found if topic and state.name is not None}
    results = []
    for state, topic in found:
        twice = times[state.name, state.topic_id] > 1
        if topic is not None and topic.uuid in both:
            if state.name is None:
                continue  # the row with the name is the answer for both
            twice = True
        error, reason = await outcome(_delete(state, topic, twice, context))
        shown = topic
        if topic is not None and error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            shown = topic if context.may_describe(topic.name, audit=False) else None
        results.append(_result(state, shown, error, reason))
    return DeleteTopicsResponse(responses=results)


async def _find(state: DeleteTopicState, topics: TopicTable) -> Topic | None:
    if state.name is not None:
        return await topics.get(state.name)
    found = await topics.get_id(state.topic_id)
    return None if found is not None and topics.is_view(found) else found


async def _delete(
    state: DeleteTopicState, topic: Topic | None, twice: bool, context: Context
) -> None:
    if not context.settings.flag("delete.topic.enable"):
        error = ErrorCode.TOPIC_DELETION_DISABLED
        if context.version < 3:
            error = ErrorCode.INVALID_REQUEST
        raise Refused(error, "Topics cannot be deleted: delete.topic.enable is false.")
    if twice:
        raise invalid_request("The request names this topic twice.")
    _check_allowed(state, topic, context)
    if state.name is not None and state.topic_id != ZERO_UUID:
        raise invalid_request("Name the topic or give its id, not both.")
    if state.name is None and state.topic_id == ZERO_UUID:
        raise invalid_request("Neither topic name nor id were specified.")
    if topic is None:
        raise _unknown(state)
    await context.charge_mutation(topic.partitions, strict_since=5)
    error = await delete_topic(context.store, context.keys, topic)
    context.topics.invalidate()
    if error:
        raise _unknown(state)


def _check_allowed(state: DeleteTopicState, topic: Topic | None, context: Context) -> None:
    """Raise Refused unless the client may delete the topic, or may know that it is missing."""
    name = topic.name if topic is not None else state.name
    if name is None:  # an id that no topic has
        return
    if context.allows(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, audit=False):
        return
    if topic is None and context.may_describe(name, audit=False):
        return
    # Kafka looks for a topic by name only if the client may describe it.
    hidden = state.name is not None and not context.may_describe(name, audit=False)
    if hidden or not context.allows(Operation.DELETE, ResourceType.TOPIC, name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        raise Refused(error, error.message)


def _unknown(state: DeleteTopicState) -> Refused:
    if state.name is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with id {state.topic_id}.")
    return unknown_topic(state.name)


def _result(
    state: DeleteTopicState, topic: Topic | None, error: ErrorCode, reason: str | None
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name if topic else state.name,
        topic_id=topic.uuid if topic else state.topic_id,
        error_code=error,
        error_message=reason,
    )
