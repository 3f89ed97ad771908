"""The connection of a Kafka 0.7 client: requests in order, produced sets pipelined.

Rules
- PRODUCE has no response. Sets for known topics are sent to Redis at once, in the order of their
  arrival; a later read on this connection waits for them, so that a client finds what it has sent.
- While Redis is unreachable, or refuses writes for now, sets that it has certainly not applied are
  retried in order, and later requests wait: reading from the client then stops, and its sends
  block. A 0.7 client does not send a dropped set again.
- A set that cannot be stored is counted and logged with the client's address. Only a frame that is
  no request of the Kafka 0.7 protocol closes the connection.
"""

import asyncio
import random
from collections import deque
from collections.abc import Coroutine, Sequence
from time import perf_counter
from typing import Any, TypeAlias

from msgspec.structs import replace

from korvet import logfmt
from korvet.broker.client_socket import MAX_HELD
from korvet.broker.connection import LARGE_ANSWERS, Connection
from korvet.broker.dispatch import CloseConnection
from korvet.broker.open_connections import OpenConnections
from korvet.context import Services
from korvet.errors import TOPIC_GONE, ErrorCode
from korvet.legacy import fetch, produce
from korvet.legacy.topics import Refusal
from korvet.log.reader import LogReader
from korvet.scripts.log import AppendReply
from korvet.security.acl import CLUSTER_NAME, Operation, ResourceType
from korvet.security.authorizer import RulesUnreadable
from korvet.store.errors import StoreError
from korvet.wire.records import BadBatch
from korvet.wire.requests_v07 import (
    FETCH,
    MULTIFETCH,
    NAMES,
    BrokenFrame,
    Buffer,
    Fetch,
    Frame,
    LegacyError,
    Offsets,
    Produce,
    messages_answer,
    multi_answer,
    offsets_answer,
    parse,
)

Answer: TypeAlias = Coroutine[Any, Any, list[Buffer]]
LEAST_PAUSE_S, MOST_PAUSE_S = 0.05, 2.0
"""Pause between two attempts to store sets: it doubles."""
DENIED = "the client is not authorized for the topic"
STOPPING = "the broker stops before Redis has applied it"
MAX_DISCONNECTED_BYTES = 64 << 20
"""Bytes of sets to retry for clients that have disconnected: more are dropped."""
MAX_CONNECTED_BYTES = 256 << 20
"""Bytes of requests of all connections, above which a connection with any is not read."""
CONNECTION_BYTES = 16 << 10
"""Bytes of a connection without its requests."""

log = logfmt.get("legacy")


class PendingBytes:
    """Bytes of requests that all connections hold, of disconnected and connected clients."""

    def __init__(self) -> None:
        self.disconnected = 0
        self.connected = 0


class LegacyConnection(Connection):
    """Serves the Kafka 0.7 protocol, with the limits and order of `Connection`."""

    speaks = "the Kafka 0.7 protocol"
    max_control = 2**31 - 1

    def __init__(
        self,
        services: Services,
        connections: OpenConnections,
        max_frame: int,
        reader: LogReader,
        pending: PendingBytes,
    ) -> None:
        super().__init__(services, connections, max_frame)
        self._reader = reader
        self._appending: set[asyncio.Future[AppendReply]] = set()
        self._own_tasks: set[asyncio.Task[list[Buffer]]] = set()
        self._retried: deque[Produce] = deque()
        self._retrier: asyncio.Task[list[Buffer]] | None = None
        self._pending = pending
        self._may_retry, self._is_logged = True, False
        self._counted_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._count_bytes()

    def _flush(self) -> None:
        super()._flush()
        self._count_bytes()

    def regulate(self) -> None:
        self._count_bytes()
        crowded = self._counted_bytes > 0 and self._pending.connected >= MAX_CONNECTED_BYTES
        self.max_held = 0 if crowded else MAX_HELD
        super().regulate()

    def _count_bytes(self) -> None:
        """Update the total of all connections."""
        held = 0 if self._transport.is_closing() else self._answers.weight + self._intake.held
        self._pending.connected += held - self._counted_bytes
        self._counted_bytes = held

    def _gone(self) -> None:
        """Store what a disconnected client has sent; a broker that stops waits for that."""
        left, before = list(self._waiting), self._in_progress()
        if left or before:
            self._start(self._store_and_leave(left, before))
        else:
            super()._gone()

    async def _store_and_leave(
        self, left: Sequence[Buffer], before: Sequence["asyncio.Future[Any]"]
    ) -> list[Buffer]:
        waits = [*left, *(each.messages for each in self._retried)]
        size = CONNECTION_BYTES + self._answers.weight + sum(map(len, waits))
        self._pending.disconnected += size
        self._may_retry = self._pending.disconnected <= MAX_DISCONNECTED_BYTES
        try:
            return await self._store(left, before)
        finally:
            self._pending.disconnected -= size
            super()._gone()

    def drain(self) -> None:
        """Store the requests received, and close the connection once all have a response."""
        left, before = list(self._waiting), self._in_progress()
        super().drain()
        if left:
            self._start(self._store(left, before))

    def _in_progress(self) -> "list[asyncio.Future[Any]]":
        """Return the appends in progress. Call it before creating a task that waits for them: two
        tasks that called it later would wait for each other."""
        return [*self._appending, *self._own_tasks]

    def _start(self, work: Answer) -> "asyncio.Task[list[Buffer]]":
        """Run a task that outlives the connection."""
        task = self._loop.create_task(work)
        self._own_tasks.add(task)
        task.add_done_callback(self._own_tasks.discard)
        return task

    async def _store(
        self, frames: Sequence[Buffer], before: Sequence["asyncio.Future[Any]"]
    ) -> list[Buffer]:
        """Store the sets of these frames in order, after the appends that were in progress."""
        left = deque(frames)
        try:
            if before:
                await asyncio.wait(before)
            while self._retrier is not None:
                await asyncio.wait([self._retrier])
            while left:
                try:
                    found = parse(left.popleft())
                except BrokenFrame:
                    break
                found = self._without_denied(found)
                if found.requests and isinstance(found.requests[0], Produce):
                    await self._append_later(list(found.requests), found, perf_counter())
        except asyncio.CancelledError:
            if left:
                log.warning(
                    "requests dropped", client=self.client, count=len(left), reason=STOPPING
                )
            raise
        return []

    def _begin(self, frame: Buffer) -> Answer | list[Buffer]:
        try:
            found = parse(frame)
        except BrokenFrame as error:
            raise CloseConnection(str(error)) from None
        began = perf_counter()
        if self._services.authorizer.enabled:
            found = self._without_denied(found)
        if not found.requests or isinstance(found.requests[0], Produce):
            if self._retrier is not None and found.requests:
                after = [self._retrier]
                work = self._append_later(list(found.requests), found, began, after)
                return self._shielded(self._start(work))
            later = [request for request in found.requests if not self._append(request)]
            if not later and found.kind != MULTIFETCH:
                self._count(found, "NONE", began)
                return []
            if later:
                return self._shielded(self._start(self._append_later(later, found, began)))
        else:
            self._release()
        return self._read(found, began)

    async def _finish(self, request: Any) -> list[Buffer] | None:
        answer: list[Buffer] | None = await request
        return answer

    def _may_be_large(self, frame: Buffer) -> bool:
        return int.from_bytes(frame[:2], "big") in (FETCH, MULTIFETCH)

    def _promise(self, request: Any) -> int:
        return LARGE_ANSWERS

    def _about(self, request: Any) -> dict[str, object]:
        return {"api": "Legacy"}

    async def _shielded(self, task: "asyncio.Task[list[Buffer]]") -> list[Buffer]:
        return await asyncio.shield(task)

    # Authorization.

    def _may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether the client, which has not authenticated, may do this."""
        try:
            return self._services.authorizer.allows(self.session, operation, kind, name)
        except RulesUnreadable:
            return False

    def _may_create(self, topic: str) -> bool:
        create = Operation.CREATE
        return self._may(create, ResourceType.CLUSTER, CLUSTER_NAME) or self._may(
            create, ResourceType.TOPIC, topic
        )

    def _without_denied(self, frame: Frame) -> Frame:
        """Refuse the sets of topics that the client may not write to; return the frame's others."""
        if not frame.requests or not isinstance(frame.requests[0], Produce):
            return frame
        allowed = []
        for request in frame.requests:
            if self._may(Operation.WRITE, ResourceType.TOPIC, request.topic):
                allowed.append(request)
            elif isinstance(request, Produce):
                self._refuse_set(request, DENIED)
        return replace(frame, requests=allowed)

    # Writing.

    def _append(self, request: Any) -> bool:
        """Send or refuse the set. Returns False if its topic has to be looked up first."""
        try:
            future = produce.append(request, self._services)
        except (Refusal, BadBatch) as refusal:
            self._refuse_set(request, str(refusal))
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
        if isinstance(error, produce.NOT_APPLIED):
            self._retry(request, str(error))
        elif error is not None:
            self._refuse_set(request, str(error))
        elif done.result().error:
            self._reject(request, done.result())

    def _reject(self, request: Produce, reply: AppendReply) -> None:
        if reply.error in TOPIC_GONE:
            self._services.topics.invalidate()
        self._refuse_set(request, ErrorCode(reply.error).message)

    async def _append_later(
        self,
        requests: list[Any],
        frame: Frame,
        began: float,
        after: Sequence["asyncio.Future[Any]"] = (),
    ) -> list[Buffer]:
        """Look up or create topics, and store the sets; the client's next request waits."""
        left = deque(requests)
        try:
            if after:
                await asyncio.wait(after)
            await self._store_all(left)
        except asyncio.CancelledError:
            self._refuse_all(left)
            raise
        self._count(frame, "NONE", began)
        return []

    def _retry(self, request: Produce, reason: str) -> None:
        """Store the set when Redis is back; later requests wait for it."""
        self._log_away(reason)
        self._retried.append(request)
        if self._retrier is None:
            self._retrier = self._start(self._store_retried())

    async def _store_retried(self) -> list[Buffer]:
        try:
            await self._store_all(self._retried)
        except asyncio.CancelledError:
            self._refuse_all(self._retried)
            raise
        finally:
            self._retrier = None
        return []

    async def _store_all(self, left: "deque[Any]") -> None:
        """Store every set, however long Redis is unreachable."""
        pause = LEAST_PAUSE_S
        while left:
            try:
                reply = await produce.create_and_append(left[0], self._services, self._may_create)
            except produce.StoreAway as away:
                if self._may_retry:
                    self._log_away(str(away))
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(2 * pause, MOST_PAUSE_S)
                    continue
                self._refuse_set(left.popleft(), str(away))
            except (Refusal, BadBatch, StoreError) as refusal:
                self._refuse_set(left.popleft(), str(refusal))
            else:
                request = left.popleft()
                if reply.error:
                    self._reject(request, reply)
            pause, self._is_logged = LEAST_PAUSE_S, False

    def _log_away(self, reason: str) -> None:
        if not self._is_logged:
            self._is_logged = True
            log.warning("produced sets wait for Redis", client=self.client, reason=reason)

    def _refuse_all(self, left: "deque[Any]") -> None:
        while left:
            self._refuse_set(left.popleft(), STOPPING)

    def _refuse_set(self, request: Produce, reason: str) -> None:
        self._services.metrics.requests.add(1, "LegacyProduceSet", "REFUSED")
        log.warning(
            "produced set refused",
            client=f"{self.host}:{self.port}",
            topic=request.topic,
            partition=request.partition,
            bytes=len(request.messages),
            reason=reason,
        )

    # Reading.

    async def _read(self, frame: Frame, began: float) -> list[Buffer]:
        if before := self._in_progress():
            await asyncio.wait(before)
        parts = []
        left = fetch.response_limit(self._services)
        for request in frame.requests:
            part, error = await self._answer(request, left)
            left = max(0, left - sum(map(len, part)))
            parts.append((part, error))
        answer = (
            multi_answer([part for part, _ in parts]) if frame.kind == MULTIFETCH else parts[0][0]
        )
        outcome = next((error.name for _, error in parts if error), "NONE")
        self._count(frame, outcome, began)
        return answer

    async def _answer(self, request: Any, room: int) -> tuple[list[Buffer], LegacyError]:
        try:
            needed = Operation.READ if isinstance(request, Fetch) else Operation.DESCRIBE
            if not self._may(needed, ResourceType.TOPIC, request.topic):
                raise Refusal(LegacyError.UNKNOWN, DENIED)
            if isinstance(request, Fetch):
                found = await fetch.fetch(request, self._services, self._reader, room)
                self._services.metrics.record_bytes_out.add(sum(map(len, found[1:])))
                return found, LegacyError.NO_ERROR
            return await fetch.offsets(request, self._services), LegacyError.NO_ERROR
        except Refusal as refusal:
            self._log_refusal(request, refusal)
            if isinstance(request, Offsets):
                return offsets_answer(refusal.error, []), refusal.error
            return messages_answer(refusal.error, []), refusal.error

    def _log_refusal(self, request: Fetch | Offsets, refusal: Refusal) -> None:
        log.warning(
            "request refused",
            client=f"{self.host}:{self.port}",
            topic=request.topic,
            partition=request.partition,
            error=refusal.error.name,
            reason=str(refusal),
        )

    def _count(self, frame: Frame, outcome: str, began: float) -> None:
        name = "Legacy" + NAMES[frame.kind]
        self._services.metrics.answered(name, outcome, perf_counter() - began)
