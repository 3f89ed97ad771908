"""CreatePartitions. Add partitions to topics.

Behaviour
- checked in this order: INVALID_REQUEST (named twice), UNKNOWN_TOPIC_OR_PARTITION,
  INVALID_PARTITIONS (no increase), POLICY_VIOLATION (too many), INVALID_REPLICA_ASSIGNMENT
- an assignment names one list of live brokers per new partition; it is checked and then ignored, as
  every broker serves every partition
- validate_only does all checks and writes nothing
Versions
- v1 as v0, v2 flexible, v3 as v2
"""

from collections import Counter

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.topics.lifecycle import (
    Refused,
    add_partitions,
    check_assignment,
    outcome,
    unknown_topic,
)
from korvet.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

ATTEMPTS = 20


async def create_partitions(
    request: CreatePartitionsRequest, context: Context
) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        error, reason = (
            (ErrorCode.INVALID_REQUEST, "The request names this topic twice.")
            if times[topic.name] > 1
            else await outcome(_grow(topic, request.validate_only, context))
        )
        results.append(
            CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=reason)
        )
    return CreatePartitionsResponse(results=results)


async def _grow(asked: CreatePartitionsTopic, validate_only: bool, context: Context) -> None:
    for _ in range(ATTEMPTS):
        topic = await context.topics.get(asked.name)
        if topic is None:
            raise unknown_topic(asked.name)
        if asked.count <= topic.partitions:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} has {topic.partitions} partition(s); {asked.count} would "
                "not be an increase.",
            )
        added = asked.count - topic.partitions
        if asked.assignments is not None:
            if len(asked.assignments) != added:
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{added} new partition(s) need {added} assignment(s), not "
                    f"{len(asked.assignments)}.",
                )
            live = {broker.id for broker in context.services.registration.brokers}
            for row in asked.assignments:
                check_assignment(row.broker_ids, live)
        await context.charge_mutation(added, strict_since=3)
        done = await add_partitions(
            context.store, context.keys, topic, asked.count, validate_only=validate_only
        )
        context.topics.invalidate()
        if done:
            return
    raise Refused(ErrorCode.REQUEST_TIMED_OUT, "The topic was changed concurrently: try again.")
