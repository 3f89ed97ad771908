"""CreateTopics. Create topics.

Behaviour
- POLICY_VIOLATION for all topics if the request has more than 10,000 partitions in total, not
  counting topics that it names twice
- POLICY_VIOLATION if there are max.topics
- checked in this order: INVALID_REQUEST (named twice), INVALID_TOPIC_EXCEPTION,
  TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION (the name differs from another topic's only in dots
  and underscores), INVALID_CONFIG, INVALID_REQUEST (assignment and counts),
  INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS
- topic_config_error_code TOPIC_AUTHORIZATION_FAILED, and neither counts nor configs, without
  DESCRIBE_CONFIGS on the topic
- any replication factor is accepted and reported as 1: Redis does the replication
- validate_only does all checks and writes nothing
Versions
- v1 error messages and validate_only, v4 -1 means the broker's default (accepted in every version),
  v5 counts and configs in the response, v7 topic ids
"""

from collections import Counter
from uuid import UUID

from korvet.base.errors import ErrorCode
from korvet.config.topic_policy import validate_all
from korvet.context import Context
from korvet.security.acl import Operation, ResourceType
from korvet.store.errors import StoreError
from korvet.topics.lifecycle import (
    MAX_PARTITIONS,
    Refused,
    check_assignment,
    check_topic_name,
    create_topic,
    invalid_request,
    plan_topic,
    refuse_above,
    refuse_colliding,
    refuse_not_durable,
    store_failure,
)
from korvet.topics.table import Definition
from korvet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def create_topics(request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if times[topic.name] == 1]
    if sum(_count(topic, context) for topic in once) > MAX_PARTITIONS:
        reason = f"A request can create at most {MAX_PARTITIONS} partitions."
        return CreateTopicsResponse(
            topics=[_refusal(name, ErrorCode.POLICY_VIOLATION, reason) for name in times]
        )
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if times[topic.name] > 1:
                raise invalid_request("Duplicate topic name.")
            results.append(await _create(topic, request.validate_only, context))
        except Refused as refused:
            results.append(_refusal(topic.name, refused.error, refused.reason))
        except StoreError as error:
            # Earlier topics of the request exist: if all were reported as failed, a retry would be
            # rejected.
            results.append(_refusal(topic.name, store_failure(error), str(error)))
    return CreateTopicsResponse(topics=results)


def _refusal(name: str, error: ErrorCode, reason: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error, error_message=reason)


async def _create(
    topic: CreatableTopic, validate_only: bool, context: Context
) -> CreatableTopicResult:
    reason = check_topic_name(topic.name, reserved=context.services.topic_configs.reserved_names)
    if reason:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if await context.topics.get(topic.name) is not None:
        raise _exists(topic.name)
    refuse_above(context.settings.integer("max.topics"), await context.topics.count())
    refuse_colliding(context.topics.find_colliding(topic.name), topic.name)
    configs = {config.name: config.value for config in topic.configs}
    reason = validate_all(configs)
    if reason:
        raise Refused(ErrorCode.INVALID_CONFIG, reason)
    definition = plan_topic(
        topic.name, _partitions(topic, context), configs, context.services.topic_configs
    )
    await context.charge_mutation(definition.partitions, strict_since=6)
    if validate_only:
        await refuse_not_durable(context.store, definition.configs)
    else:
        error = await create_topic(context.store, context.keys, topic.name, definition)
        context.topics.invalidate()
        if error == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise _exists(topic.name)
    return _result(topic.name, definition, context)


def _exists(name: str) -> Refused:
    return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _count(topic: CreatableTopic, context: Context) -> int:
    """Return how many partitions are requested, whether or not the topic can be created."""
    if topic.assignments:
        return len(topic.assignments)
    if topic.num_partitions == -1:
        return context.settings.integer("num.partitions")
    return max(0, topic.num_partitions)


def _partitions(topic: CreatableTopic, context: Context) -> int:
    """Return the requested number of partitions, by count or by assignment. Raises Refused."""
    if not topic.assignments:
        if topic.replication_factor == 0 or topic.replication_factor < -1:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "The replication factor must be larger than 0, or -1 for the default.",
            )
        if topic.num_partitions == -1:
            return context.settings.integer("num.partitions")
        return topic.num_partitions
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise invalid_request(
            "With an explicit assignment, partition count and replication factor must be -1.",
        )
    numbers = sorted(row.partition_index for row in topic.assignments)
    if numbers != list(range(len(numbers))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Assigned partitions must be numbered 0, 1, 2 and so on, each once.",
        )
    live = {broker.id for broker in context.services.registration.brokers}
    for row in topic.assignments:
        check_assignment(row.broker_ids, live)
    return len(numbers)


def _result(name: str, definition: Definition, context: Context) -> CreatableTopicResult:
    topic_id = UUID(hex=definition.id)
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, audit=False):
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(name=name, topic_id=topic_id, topic_config_error_code=denied)
    resolved = context.services.topic_configs.resolve(name, definition.configs)
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        num_partitions=definition.partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.source,
            )
            for config in resolved.values()
        ],
    )
