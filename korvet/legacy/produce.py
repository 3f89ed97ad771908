"""PRODUCE and MULTIPRODUCE of the Kafka 0.7 protocol: no response, only a log line on an error.

Behaviour
- a set is stored whole or not at all; refused: a bad checksum or length, a codec that 0.7 lacks,
  compression inside compression, a message above max.message.bytes
- partition -1: the broker chooses one
- an unknown topic is created, with offset.mode=bytes and legacy.num.partitions partitions

Rules
- Sets for known topics are sent to Redis at once, in the order of their arrival.
- While Redis is unreachable, or refuses writes for now, sets that it has certainly not applied are
  retried in order.
- A set that cannot be stored is counted and logged with the client's address.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from korvet.base import logfmt
from korvet.base.errors import TOPIC_GONE, ErrorCode
from korvet.legacy.topics import Admit, LegacyTopics, Refusal, check_partition
from korvet.log.layouts import bytes as bytes_layout
from korvet.log.opening import MAX_AT_ONCE, in_thread
from korvet.scripts.append_call import count_of
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import AppendReply
from korvet.store.errors import RedisUnreachable, StoreError, StoreRefused, StoreUnavailable
from korvet.topics.table import Topic
from korvet.wire.records import BadBatch
from korvet.wire.requests_v07 import RANDOM_PARTITION, Buffer, Produce

Answer: TypeAlias = Coroutine[Any, Any, list[Buffer]]
OPENED_AT_ONCE = MAX_AT_ONCE // 8
"""Max bytes of a set that the event loop decompresses: it decodes each message."""
LEAST_PAUSE_S, MOST_PAUSE_S = 0.05, 2.0
"""Pause between two attempts to store sets: it doubles."""
STOPPING = "the broker stops before Redis has applied it"
log = logfmt.get("legacy")


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


class ProducedSets:
    """The sets of one connection that are not stored yet; `client` returns its address."""

    def __init__(self, appender: SetAppender, client: Callable[[], str], admit: Admit) -> None:
        self._appender = appender
        self._client = client
        self._admit = admit
        self._appending: set[asyncio.Future[AppendReply]] = set()
        self._own_tasks: set[asyncio.Task[list[Buffer]]] = set()
        self.retried: deque[Produce] = deque()
        self.retrier: asyncio.Task[list[Buffer]] | None = None
        """The task that stores sets again; None if none waits for Redis."""
        self.may_retry, self._is_logged = True, False

    def in_progress(self) -> "list[asyncio.Future[Any]]":
        """Return the appends in progress. Call it before creating a task that waits for them: two
        tasks that called it later would wait for each other."""
        return [*self._appending, *self._own_tasks]

    def start(self, work: Answer) -> "asyncio.Task[list[Buffer]]":
        """Run a task that outlives the connection."""
        task = asyncio.get_running_loop().create_task(work)
        self._own_tasks.add(task)
        task.add_done_callback(self._own_tasks.discard)
        return task

    def append(self, request: Any) -> bool:
        """Send or refuse the set. Returns False if its topic has to be looked up first."""
        try:
            future = self._appender.append(request)
        except (Refusal, BadBatch) as refusal:
            self.refuse(request, str(refusal))
            return True
        if future is None:
            return False
        self._appending.add(future)
        future.add_done_callback(lambda done: self._appended(request, done))
        return True

    def _appended(self, request: Produce, done: "asyncio.Future[AppendReply]") -> None:
        self._appending.discard(done)
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, NOT_APPLIED):
            self._retry(request, str(error))
        elif error is not None:
            self.refuse(request, str(error))
        elif done.result().error:
            self._reject(request, done.result())

    def _reject(self, request: Produce, reply: AppendReply) -> None:
        if reply.error in TOPIC_GONE:
            self._appender.invalidate()
        self.refuse(request, ErrorCode(reply.error).message)

    async def append_later(
        self, left: "deque[Any]", after: Sequence["asyncio.Future[Any]"] = ()
    ) -> None:
        """Store the sets after those appends; look up or create their topics.

        Refuses the sets that are left when the broker stops.
        """
        try:
            if after:
                await asyncio.wait(after)
            await self._store_all(left)
        except asyncio.CancelledError:
            while left:
                self.refuse(left.popleft(), STOPPING)
            raise

    def _retry(self, request: Produce, reason: str) -> None:
        """Store the set when Redis is back; later requests wait for it."""
        self._log_waiting(reason)
        self.retried.append(request)
        if self.retrier is None:
            self.retrier = self.start(self._store_retried())

    async def _store_retried(self) -> list[Buffer]:
        try:
            await self.append_later(self.retried)
        finally:
            self.retrier = None
        return []

    async def _store_all(self, left: "deque[Any]") -> None:
        """Store every set, however long Redis is unreachable."""
        pause = LEAST_PAUSE_S
        while left:
            try:
                reply = await self._appender.create_and_append(left[0], self._admit)
            except SetNotApplied as failure:
                if self.may_retry:
                    self._log_waiting(str(failure))
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(2 * pause, MOST_PAUSE_S)
                    continue
                self.refuse(left.popleft(), str(failure))
            except (Refusal, BadBatch, StoreError) as refusal:
                self.refuse(left.popleft(), str(refusal))
            else:
                request = left.popleft()
                if reply.error:
                    self._reject(request, reply)
            pause, self._is_logged = LEAST_PAUSE_S, False

    def _log_waiting(self, reason: str) -> None:
        if not self._is_logged:
            self._is_logged = True
            log.warning("produced sets wait for Redis", client=self._client(), reason=reason)

    def refuse(self, request: Produce, reason: str) -> None:
        self._appender.topics.node.metrics.requests.add(1, "LegacyProduceSet", "REFUSED")
        log.warning(
            "produced set refused",
            client=self._client(),
            topic=request.topic,
            partition=request.partition,
            bytes=len(request.messages),
            reason=reason,
        )
