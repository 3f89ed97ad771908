"""PRODUCE and MULTIPRODUCE of the Kafka 0.7 protocol: no response, only a log line on an error.

Behaviour
- a set is stored whole or not at all; refused: a bad checksum or length, a codec that 0.7 lacks,
  compression inside compression, a message above max.message.bytes
- partition -1: the broker chooses one
- an unknown topic is created, with offset.mode=bytes and legacy.num.partitions partitions
"""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass

from korvet.base.errors import ErrorCode
from korvet.legacy.topics import Admit, LegacyTopics, check_partition
from korvet.log.layouts import bytes as bytes_layout
from korvet.log.opening import MAX_AT_ONCE, in_thread
from korvet.scripts.append_call import count_of
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import AppendReply
from korvet.store.errors import RedisUnreachable, StoreRefused, StoreUnavailable
from korvet.topics.table import Topic
from korvet.wire.records import BadBatch
from korvet.wire.requests_v07 import RANDOM_PARTITION, Produce

OPENED_AT_ONCE = MAX_AT_ONCE // 8
"""Max bytes of a set that the event loop decompresses: it decodes each message."""
NOT_APPLIED = (RedisUnreachable, StoreRefused)
"""Errors of an append that Redis has certainly not applied: it may be sent again."""


class SetNotApplied(Exception):
    """Redis is unreachable or refuses writes for now, and has applied nothing."""


@dataclass(eq=False)
class SetAppender:
    """Appends the sets of all connections."""

    topics: LegacyTopics

    def append(self, request: Produce) -> "asyncio.Future[AppendReply] | None":
        """Send the messages to Redis; None if `create_and_append` has to do it.

        Raises Refusal or BadBatch.
        """
        topic = self.topics.node.topics.peek(request.topic)
        if topic is None:
            return None
        try:
            return self._submit(topic, request, self._call(topic, request, OPENED_AT_ONCE))
        except BadBatch as bad:
            if bad.error != ErrorCode.MESSAGE_TOO_LARGE:
                raise
            return None

    async def create_and_append(self, request: Produce, admit: Admit) -> AppendReply:
        """Look up or create the topic, and append the messages. Raises SetNotApplied too."""
        try:
            topic = await self.topics.get_or_create(request.topic, admit)
        except StoreUnavailable as error:
            # If the topic was created all the same, the next attempt finds it.
            raise SetNotApplied(str(error)) from error
        limit = topic.policy.max_opened_bytes
        call = await in_thread(lambda: self._call(topic, request, limit))
        answer: Awaitable[AppendReply] = self._submit(topic, request, call)
        try:
            return await answer
        except NOT_APPLIED as error:
            raise SetNotApplied(str(error)) from error

    def invalidate(self) -> None:
        """Read the topics again: the topic of a set is gone."""
        self.topics.node.topics.invalidate()

    def _call(self, topic: Topic, request: Produce, limit: int) -> Call[AppendReply]:
        """Return the call that appends the messages, which open `limit` bytes at most."""
        partition = request.partition
        if partition == RANDOM_PARTITION:
            partition = random.randrange(topic.partitions)
        check_partition(topic, partition)
        return bytes_layout.append_set(topic, partition, request.messages, limit)

    def _submit(
        self, topic: Topic, request: Produce, call: Call[AppendReply]
    ) -> "asyncio.Future[AppendReply]":
        future = self.topics.node.store.submit(call)
        count, size = count_of(call), len(request.messages)

        def count_stored(done: "asyncio.Future[AppendReply]") -> None:
            if not done.cancelled() and done.exception() is None and not done.result().error:
                self.topics.node.metrics.appended(topic.name, count, size)

        future.add_done_callback(count_stored)
        return future
