"""PRODUCE and MULTIPRODUCE of the Kafka 0.7 protocol: no response, only a log line on an error.

Behaviour
- a set is stored whole or not at all; refused: a bad checksum or length, a codec that 0.7 lacks,
  compression inside compression, a message above max.message.bytes
- partition -1: the broker chooses one
- an unknown topic is created, with offset.mode=bytes and legacy.num.partitions partitions
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from korvet.context import Services
from korvet.legacy.topics import check_partition, get_or_create
from korvet.log.layouts import bytes as bytes_layout
from korvet.scripts.log import AppendReply, count_of
from korvet.store.errors import RedisUnreachable, StoreRefused, StoreUnavailable
from korvet.topics.table import Topic
from korvet.wire.requests_v07 import RANDOM_PARTITION, Produce

NOT_APPLIED = (RedisUnreachable, StoreRefused)
"""Errors of an append that Redis has certainly not applied: it may be sent again."""


class StoreAway(Exception):
    """Redis is unreachable or refuses writes for now, and has applied nothing."""


def append(request: Produce, services: Services) -> "asyncio.Future[AppendReply] | None":
    """Send the messages to Redis; None if the topic has to be looked up first.

    Raises Refusal or BadBatch.
    """
    topic = services.topics.peek(request.topic)
    return None if topic is None else _submit(topic, request, services)


async def create_and_append(
    request: Produce, services: Services, may_create: Callable[[str], bool]
) -> AppendReply:
    """Look up or create the topic, and append the messages. Raises StoreAway too."""
    try:
        topic = await get_or_create(request.topic, services, may_create)
    except StoreUnavailable as error:
        # If the topic was created all the same, the next attempt finds it.
        raise StoreAway(str(error)) from error
    answer: Awaitable[AppendReply] = _submit(topic, request, services)
    try:
        return await answer
    except NOT_APPLIED as error:
        raise StoreAway(str(error)) from error


def _submit(topic: Topic, request: Produce, services: Services) -> "asyncio.Future[AppendReply]":
    partition = request.partition
    if partition == RANDOM_PARTITION:
        partition = random.randrange(topic.partitions)
    check_partition(topic, partition)
    call = bytes_layout.append_set(services.keys, topic, partition, request.messages)
    future = services.store.submit(call)
    count, size = count_of(call), len(request.messages)
    future.add_done_callback(lambda done: _count(done, topic.name, count, size, services))
    return future


def _count(
    done: "asyncio.Future[AppendReply]", topic: str, count: int, size: int, services: Services
) -> None:
    if not done.cancelled() and done.exception() is None and not done.result().error:
        services.metrics.appended(topic, count, size)
