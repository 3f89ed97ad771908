"""Metadata. Return brokers, topics, partitions and their leaders.

Behaviour
- partitions are spread over the live brokers by number; each broker serves all of them, whatever
  leader is reported
- brokers with their addresses on the client's listener; brokers without that listener are left out
- TOPIC_AUTHORIZATION_FAILED for a topic that the client may not describe, whether it exists or not,
  and for a missing one that it may not create; other topics are left out of a list of all
- `__consumer_offsets` is a view of the committed offsets: an internal topic of 50 partitions, in a
  list of all once a client asked for the coordinator of a group
- a missing topic with a reserved name is logged with the setting that permits it
- UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION per topic
- a missing topic is created if broker and client allow it; the response has it at once, up to
  version 1 LEADER_NOT_AVAILABLE first, as in Kafka 0.8. A topic whose name differs from another's
  only in dots and underscores is not created: UNKNOWN_TOPIC_OR_PARTITION
- while Redis is unreachable the topics and brokers last read are returned, as by a Kafka broker
  without its controller: clients take a topic without partitions as deleted, and rebalance
- an unknown topic gets LEADER_NOT_AVAILABLE meanwhile, with the brokers: newer librdkafka does not
  recover from a response that has topics and no broker. If no topic was ever read, a request for
  all topics gets no topics and no brokers: clients ignore such a response
Versions
- v1 controller and rack, v2 cluster id, v4 allow_auto_topic_creation, v8 authorized operations, v10
  topic ids, v12 topics by id (in v10 and v11 an id, or no name, is INVALID_REQUEST for all topics),
  v13 error code
"""

import uuid
from collections.abc import Iterable
from operator import attrgetter

from msgspec.structs import replace

from korvet.base import logfmt
from korvet.base.errors import ErrorCode
from korvet.cluster.registration import partition_rows
from korvet.context import Context
from korvet.security.acl import CLUSTER_NAME, ResourceType
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.topics.lifecycle import KAFKAS_INTERNAL, check_topic_name
from korvet.topics.table import Topic
from korvet.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from korvet.wire.schema import ZERO_UUID

BY_ID = 12

logger = logfmt.get("handlers.metadata")


async def metadata(request: MetadataRequest, context: Context) -> MetadataResponse:
    everything = request.topics is None or (context.version == 0 and not request.topics)
    if everything:
        found = [
            _describe(topic, request, context)
            for topic in await _all(context)
            if context.may_describe(topic.name, audit=False)
        ]
    elif context.version < BY_ID and not all(map(_is_named, request.topics or [])):
        found = [
            _refusal(ErrorCode.INVALID_REQUEST, row.name or "", row.topic_id)
            for row in request.topics or []
        ]
    else:
        asked = {(row.name, row.topic_id): row for row in request.topics or []}
        found = [await _one_or_refusal(row, request, context) for row in asked.values()]
    registration = context.services.registration
    nodes = registration.nodes(context.session.listener)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
        ],
        cluster_id=registration.cluster_id,
        controller_id=registration.controller_of(nodes),
        topics=found,
        cluster_authorized_operations=context.authorized_operations(
            ResourceType.CLUSTER,
            CLUSTER_NAME,
            asked=request.include_cluster_authorized_operations,
        ),
    )


def _is_named(row: MetadataRequestTopic) -> bool:
    return row.name is not None and row.topic_id == ZERO_UUID


async def _all(context: Context) -> Iterable[Topic]:
    try:
        return await context.services.offsets_view.listed(await context.topics.all())
    except StoreUnavailable:
        if not len(context.topics):
            raise
        return sorted(context.topics, key=attrgetter("name"))


async def _one_or_refusal(
    wanted: MetadataRequestTopic, request: MetadataRequest, context: Context
) -> MetadataResponseTopic:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if wanted.topic_id == ZERO_UUID and not context.may_describe(wanted.name or ""):
        return _refusal(denied, wanted.name)
    row = await _described(wanted, request, context)
    if wanted.topic_id != ZERO_UUID and row.name and not context.may_describe(row.name):
        return _refusal(denied, None, wanted.topic_id)
    return row


async def _described(
    wanted: MetadataRequestTopic, request: MetadataRequest, context: Context
) -> MetadataResponseTopic:
    try:
        return await _one(wanted, request, context)
    except StoreUnavailable:
        known = context.topics.last_known(wanted.name, wanted.topic_id)
        if known is not None:
            return _describe(known, request, context)
        return _refusal(ErrorCode.LEADER_NOT_AVAILABLE, wanted.name, wanted.topic_id)
    except StoreError as error:
        logger.error("topic definition cannot be read", topic=wanted.name, error=error)
        return _refusal(ErrorCode.UNKNOWN_SERVER_ERROR, wanted.name, wanted.topic_id)


async def _one(
    wanted: MetadataRequestTopic, request: MetadataRequest, context: Context
) -> MetadataResponseTopic:
    if wanted.topic_id != ZERO_UUID:
        known = await context.topics.get_id(wanted.topic_id)
        if known is None:
            return _refusal(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        return _describe(known, request, context)
    name = wanted.name or ""
    topic = await context.topics.get_readable(name)
    if topic is not None:
        return _describe(topic, request, context)
    if check_topic_name(name, reserved=True):
        return _absent(ErrorCode.INVALID_TOPIC_EXCEPTION, name, request, context)
    if not _is_auto_created(name, request, context):
        return _absent(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, request, context)
    if not context.may_create(name):
        return _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    if context.topics.find_colliding(name) is not None:
        # As in Kafka: Java consumers fail on an invalid name, whatever other topics they subscribe
        # to.
        return _absent(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, request, context)
    topic = await context.services.auto_creator.create(name, charge=context.charge_creation)
    if topic is None:
        return _absent(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, request, context)
    if context.version < 2:
        return _refusal(ErrorCode.LEADER_NOT_AVAILABLE, name)
    return _describe(topic, request, context)


def _is_auto_created(name: str, request: MetadataRequest, context: Context) -> bool:
    """Return whether the request creates this missing topic: not if its name is reserved."""
    may = request.allow_auto_topic_creation and context.settings.flag("auto.create.topics.enable")
    if not may or name in KAFKAS_INTERNAL:
        return False
    if check_topic_name(name, reserved=context.services.topic_configs.reserved_names):
        # The response has no place for a reason, and producers retry until they time out.
        logger.warning_again(
            "topic not created: reserved name",
            topic=name,
            advice="set reserved.topic.names.enable=true if clients need such topics",
        )
        return False
    return True


def _absent(
    error: ErrorCode, name: str, request: MetadataRequest, context: Context
) -> MetadataResponseTopic:
    """Return the row of a missing topic, with its authorized operations, as Kafka does."""
    operations = _operations(name, request, context)
    return replace(_refusal(error, name), topic_authorized_operations=operations)


def _operations(name: str, request: MetadataRequest, context: Context) -> int:
    return context.authorized_operations(
        ResourceType.TOPIC, name, asked=request.include_topic_authorized_operations
    )


def _refusal(
    error: ErrorCode, name: str | None, topic_id: uuid.UUID = ZERO_UUID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=[])


def _describe(topic: Topic, request: MetadataRequest, context: Context) -> MetadataResponseTopic:
    nodes = context.services.registration.nodes(context.session.listener)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.uuid,
        is_internal=context.topics.is_view(topic),
        partitions=partition_rows(
            MetadataResponsePartition,
            range(topic.partitions),
            nodes,
            context.services.epochs.epoch,
        ),
        topic_authorized_operations=_operations(topic.name, request, context),
    )
