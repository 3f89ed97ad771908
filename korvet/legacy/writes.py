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

from korvet import byte_topics
from korvet.context import Node
from korvet.legacy.frames import RANDOM_PARTITION, Produce
from korvet.legacy.topics import created, usable
from korvet.scripts.log import AppendReply, count_of
from korvet.store.errors import RedisUnreachable, StoreRefused, StoreUnavailable
from korvet.topics import Topic

UNDONE = (RedisUnreachable, StoreRefused)
"""What an append fails with that has certainly not happened: the same may be sent again."""


class Away(Exception):
    """Redis is away, or refuses for the moment, and has done nothing."""


def append(request: Produce, node: Node) -> "asyncio.Future[AppendReply] | None":
    """The messages are on their way to Redis; None when the topic has to be looked up first.

    Raises Refusal or BadBatch.
    """
    topic = node.topics.peek(request.topic)
    return None if topic is None else _submit(topic, request, node)


async def append_to_new(request: Produce, node: Node) -> AppendReply:
    """The same for a topic that may have to be created; or Away."""
    try:
        topic = await created(request.topic, node)
    except StoreUnavailable as error:
        # That it may have been created all the same does no harm.
        raise Away(str(error)) from error
    answer: Awaitable[AppendReply] = _submit(topic, request, node)
    try:
        return await answer
    except UNDONE as error:
        raise Away(str(error)) from error


def _submit(topic: Topic, request: Produce, node: Node) -> "asyncio.Future[AppendReply]":
    partition = request.partition
    if partition == RANDOM_PARTITION:
        partition = random.randrange(topic.partitions)
    usable(topic, partition)
    call = byte_topics.append_set(node.keys, topic, partition, request.messages)
    future = node.store.submit(call)
    count, size = count_of(call), len(request.messages)
    future.add_done_callback(lambda done: _count(done, count, size, node))
    return future


def _count(done: "asyncio.Future[AppendReply]", count: int, size: int, node: Node) -> None:
    if not done.cancelled() and done.exception() is None and not done.result().error:
        node.metrics.records_in.add(count)
        node.metrics.record_bytes_in.add(size)
