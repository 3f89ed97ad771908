"""PRODUCE and MULTIPRODUCE of Kafka 0.7: no answer, and so nothing but a log line when refused.

Behaviour
- a set is stored whole or not at all: a bad checksum, a length that lies, a codec 0.7 has not,
  compression inside compression, a message above max.message.bytes
- partition -1: the broker picks one
- a topic nobody knows comes to be, with offset.mode=bytes and legacy.num.partitions partitions
"""

import asyncio
import random
from collections.abc import Awaitable

from korvet.context import Services
from korvet.legacy.protocol import RANDOM_PARTITION, Produce
from korvet.legacy.topics import created, usable
from korvet.log.layouts import bytes as bytes_layout
from korvet.scripts.log import AppendReply, count_of
from korvet.store.errors import RedisUnreachable, StoreRefused, StoreUnavailable
from korvet.topics.table import Topic

UNDONE = (RedisUnreachable, StoreRefused)
"""What an append fails with that has certainly not happened: the same may be sent again."""


class Away(Exception):
    """Redis is away, or refuses for the moment, and has done nothing."""


def append(request: Produce, services: Services) -> "asyncio.Future[AppendReply] | None":
    """The messages are on their way to Redis; None when the topic has to be looked up first.

    Raises Refusal or BadBatch.
    """
    topic = services.topics.peek(request.topic)
    return None if topic is None else _submit(topic, request, services)


async def append_to_new(request: Produce, services: Services) -> AppendReply:
    """The same for a topic that may have to be created; or Away."""
    try:
        topic = await created(request.topic, services)
    except StoreUnavailable as error:
        # That it may have been created all the same does no harm.
        raise Away(str(error)) from error
    answer: Awaitable[AppendReply] = _submit(topic, request, services)
    try:
        return await answer
    except UNDONE as error:
        raise Away(str(error)) from error


def _submit(topic: Topic, request: Produce, services: Services) -> "asyncio.Future[AppendReply]":
    partition = request.partition
    if partition == RANDOM_PARTITION:
        partition = random.randrange(topic.partitions)
    usable(topic, partition)
    call = bytes_layout.append_set(services.keys, topic, partition, request.messages)
    future = services.store.submit(call)
    count, size = count_of(call), len(request.messages)
    future.add_done_callback(lambda done: _count(done, count, size, services))
    return future


def _count(done: "asyncio.Future[AppendReply]", count: int, size: int, services: Services) -> None:
    if not done.cancelled() and done.exception() is None and not done.result().error:
        services.metrics.records_in.add(count)
        services.metrics.record_bytes_in.add(size)
