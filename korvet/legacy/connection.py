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
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from korvet.base import logfmt
from korvet.broker.network.client_socket import MAX_QUEUED
from korvet.broker.network.open_connections import OpenConnections
from korvet.broker.network.ordered_connection import LARGE_RESPONSES, OrderedConnection
from korvet.broker.network.request_decoder import CloseConnection
from korvet.context import Services
from korvet.legacy.fetch import LegacyReader
from korvet.legacy.produce import STOPPING, Answer, ProducedSets, SetAppender
from korvet.legacy.topics import Refusal
from korvet.security.acl import CLUSTER_NAME, Operation, ResourceType
from korvet.security.authorizer import RulesUnreadable
from korvet.security.quotas import Limit
from korvet.store.errors import StoreError
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

API_KEYS = 0, 1, 1, 0, 2
"""The API keys of the newer protocol, whose quotas hold, by kind of request."""
DENIED = "the client is not authorized for the topic"
MAX_DISCONNECTED_BYTES = 64 << 20
"""Bytes of sets to retry for clients that have disconnected: more are dropped."""
MAX_CONNECTED_BYTES = 256 << 20
"""Bytes of requests of all connections, above which a connection with any is not read."""
CONNECTION_BYTES = 16 << 10
"""Bytes of a connection without its requests."""

log = logfmt.get("legacy")


class PendingBytes(Struct):
    """Bytes of requests that all connections hold, of disconnected and connected clients."""

    disconnected: int = 0
    connected: int = 0


class LegacyConnection(OrderedConnection):
    """Serves the Kafka 0.7 protocol, with the limits and order of `OrderedConnection`."""

    speaks = "the Kafka 0.7 protocol"
    max_control = 2**31 - 1

    def __init__(
        self,
        services: Services,
        connections: OpenConnections,
        max_frame: int,
        reader: LegacyReader,
        appender: SetAppender,
        pending: PendingBytes,
    ) -> None:
        super().__init__(services, connections, max_frame)
        self._authorizer = services.authorizer
        self._reader = reader
        self._sets = ProducedSets(appender, lambda: self.client, self._admit_topic)
        self._pending = pending
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
        self.max_queued = 0 if crowded else MAX_QUEUED
        super().regulate()

    def _count_bytes(self) -> None:
        """Update the total of all connections."""
        queued = (
            0 if self._transport.is_closing() else self._responses.weight + self._received.queued
        )
        self._pending.connected += queued - self._counted_bytes
        self._counted_bytes = queued

    def _leave(self) -> None:
        """Store what a disconnected client has sent; a broker that stops waits for that."""
        left, before = list(self._frames), self._sets.in_progress()
        if left or before:
            self._sets.start(self._store_and_leave(left, before))
        else:
            super()._leave()

    async def _store_and_leave(
        self, left: Sequence[Buffer], before: Sequence["asyncio.Future[Any]"]
    ) -> list[Buffer]:
        waits = [*left, *(each.messages for each in self._sets.retried)]
        size = CONNECTION_BYTES + self._responses.weight + sum(map(len, waits))
        self._pending.disconnected += size
        self._sets.may_retry = self._pending.disconnected <= MAX_DISCONNECTED_BYTES
        try:
            return await self._store(left, before)
        finally:
            self._pending.disconnected -= size
            super()._leave()

    def drain(self) -> None:
        """Store the requests received, and close the connection once all have a response."""
        left, before = list(self._frames), self._sets.in_progress()
        super().drain()
        if left:
            self._sets.start(self._store(left, before))

    async def _store(
        self, frames: Sequence[Buffer], before: Sequence["asyncio.Future[Any]"]
    ) -> list[Buffer]:
        """Store the sets of these frames in order, after the appends that were in progress."""
        left = deque(frames)
        try:
            if before:
                await asyncio.wait(before)
            while self._sets.retrier is not None:
                await asyncio.wait([self._sets.retrier])
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
        limits = self._services.quotas.limits(self.session, None)
        if not limits:
            return self._answer_frame(found, began, self._release)
        answer = self._answer_frame(found, began, lambda: None)
        took_s = perf_counter() - began
        return self._charged(limits, found.kind, len(frame), answer, took_s)

    async def _charged(
        self,
        limits: tuple[Limit, ...],
        kind: int,
        received: int,
        answer: Answer | list[Buffer],
        took_s: float,
    ) -> list[Buffer]:
        """Charge the quotas, and begin the next request only when they allow it."""
        parts = answer if isinstance(answer, list) else await answer
        sent = sum(map(len, parts))
        self.mute(
            await self._services.quotas.throttle_ms(limits, API_KEYS[kind], received, sent, took_s)
        )
        return parts

    def _answer_frame(
        self, asked: Frame, began: float, release: Callable[[], None]
    ) -> Answer | list[Buffer]:
        if self._authorizer.enabled:
            asked = self._without_denied(asked)
        if not asked.requests or isinstance(asked.requests[0], Produce):
            if self._sets.retrier is not None and asked.requests:
                after = [self._sets.retrier]
                work = self._append_later(list(asked.requests), asked, began, after)
                return self._shielded(self._sets.start(work))
            later = [request for request in asked.requests if not self._sets.append(request)]
            if not later and asked.kind != MULTIFETCH:
                self._count(asked, "NONE", began)
                return []
            if later:
                return self._shielded(self._sets.start(self._append_later(later, asked, began)))
        else:
            release()
        return self._read(asked, began)

    async def _finish(self, request: Any) -> list[Buffer] | None:
        answer: list[Buffer] | None = await request
        return answer

    def _may_be_large(self, frame: Buffer) -> bool:
        return int.from_bytes(frame[:2], "big") in (FETCH, MULTIFETCH)

    def _promise(self, request: Any) -> int:
        return LARGE_RESPONSES

    def _about(self, request: Any) -> dict[str, object]:
        return {"api": "Legacy"}

    async def _shielded(self, task: "asyncio.Task[list[Buffer]]") -> list[Buffer]:
        return await asyncio.shield(task)

    # Authorization.

    def _may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether the client, which has not authenticated, may do this."""
        try:
            return self._authorizer.allows(self.session, operation, kind, name)
        except RulesUnreadable:
            return False

    async def _admit_topic(self, topic: str, partitions: int) -> None:
        """Charge a topic that is to be created. Raises Refusal if the client may not create it."""
        create = Operation.CREATE
        if not (
            self._may(create, ResourceType.CLUSTER, CLUSTER_NAME)
            or self._may(create, ResourceType.TOPIC, topic)
        ):
            raise Refusal(LegacyError.WRONG_PARTITION, f"the client may not create topic {topic}")
        quotas = self._services.quotas
        wait_ms = await quotas.charge_mutation(self.session, None, partitions, strict=True)
        if wait_ms:
            reason = f"controller_mutation_rate is used up: create topic {topic} in {wait_ms} ms"
            raise Refusal(LegacyError.UNKNOWN, reason)

    def _without_denied(self, frame: Frame) -> Frame:
        """Refuse the sets of topics that the client may not write to; return the frame's others."""
        if not frame.requests or not isinstance(frame.requests[0], Produce):
            return frame
        allowed = []
        for request in frame.requests:
            if self._may(Operation.WRITE, ResourceType.TOPIC, request.topic):
                allowed.append(request)
            elif isinstance(request, Produce):
                self._sets.refuse(request, DENIED)
        return replace(frame, requests=allowed)

    async def _append_later(
        self,
        requests: list[Any],
        frame: Frame,
        began: float,
        after: Sequence["asyncio.Future[Any]"] = (),
    ) -> list[Buffer]:
        """Store the sets after those appends; the client's next request waits."""
        await self._sets.append_later(deque(requests), after)
        self._count(frame, "NONE", began)
        return []

    # Reading.

    async def _read(self, frame: Frame, began: float) -> list[Buffer]:
        if before := self._sets.in_progress():
            await asyncio.wait(before)
        parts = []
        left = self._reader.response_limit()
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
                found = await self._reader.fetch(request, room)
                self._services.metrics.fetched(request.topic, 0, sum(map(len, found[1:])))
                return found, LegacyError.NO_ERROR
            return await self._reader.offsets(request), LegacyError.NO_ERROR
        except (Refusal, StoreError) as refusal:
            error = refusal.error if isinstance(refusal, Refusal) else LegacyError.UNKNOWN
            log.warning(
                "request refused",
                client=self.client,
                topic=request.topic,
                partition=request.partition,
                error=error.name,
                reason=str(refusal),
            )
            if isinstance(request, Offsets):
                return offsets_answer(error, []), error
            return messages_answer(error, []), error

    def _count(self, frame: Frame, outcome: str, began: float) -> None:
        name = "Legacy" + NAMES[frame.kind]
        self._services.metrics.answered(name, outcome, perf_counter() - began)
