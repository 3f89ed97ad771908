"""One Kafka 0.7 client: its requests in order, its produced sets on their way side by side.

Rules
- PRODUCE has no answer. Sets for known topics leave for Redis at once, in the order they came; what
  reads afterwards on this connection waits for them, so that a client finds what it has sent.
- While Redis is away, or refuses for the moment, sets that it has certainly not taken are held, in
  order, and what comes behind them waits: soon nothing is read of the client any more, which its
  own sends then notice. Nobody would send a set again that was dropped.
- What cannot be stored is counted and logged with the client's address; only a frame that is no
  request of 0.7 ends the connection.
"""

import asyncio
import random
from collections import deque
from collections.abc import Coroutine, Sequence
from time import perf_counter
from typing import Any, TypeAlias

from korvet import logfmt
from korvet.broker.connection import LARGE_ANSWERS, MAX_HELD, Connection
from korvet.broker.dispatch import CloseConnection
from korvet.context import Services
from korvet.errors import TOPIC_GONE, ErrorCode
from korvet.legacy import fetch, produce
from korvet.legacy.protocol import (
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
from korvet.legacy.topics import Refusal
from korvet.log.reader import LogReader
from korvet.scripts.log import AppendReply
from korvet.store.errors import StoreError
from korvet.wire.records import BadBatch

Answer: TypeAlias = Coroutine[Any, Any, list[Buffer]]
LEAST_PAUSE_S, MOST_PAUSE_S = 0.05, 2.0
"""Between two attempts to store what is held."""
ENDS = "the broker stops before Redis has taken it"
MOST_ORPHANED = 64 << 20
"""So many bytes are held for clients that have hung up: of those nobody stops sending."""
MOST_LIVE = 256 << 20
"""Once all connections hold so many bytes of requests, each is read again when it holds nothing."""
ORPHAN_BYTES = 16 << 10
"""What there is of a connection beside what it holds."""

log = logfmt.get("legacy")


class Orphans:
    """What all connections hold for clients that have hung up, and for those that have not."""

    def __init__(self) -> None:
        self.bytes = 0
        self.live_bytes = 0


class LegacyConnection(Connection):
    """The same socket, limits and order as for newer clients; other requests."""

    speaks = "Kafka 0.7's protocol"
    max_control = 2**31 - 1

    def __init__(
        self,
        services: Services,
        connections: set[Connection],
        max_frame: int,
        most: int,
        most_per_host: int,
        reader: LogReader,
        orphans: Orphans,
    ) -> None:
        super().__init__(services, connections, max_frame, most, most_per_host)
        self._reader = reader
        self._appending: set[asyncio.Future[AppendReply]] = set()
        self._slow: set[asyncio.Task[list[Buffer]]] = set()
        self._held: deque[Produce] = deque()
        self._holder: asyncio.Task[list[Buffer]] | None = None
        self._orphans = orphans
        self._patient, self._told = True, False
        self._noted = 0

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._note()

    def _flush(self) -> None:
        super()._flush()
        self._note()

    def _regulate(self) -> None:
        self._note()
        crowded = self._noted > 0 and self._orphans.live_bytes >= MOST_LIVE
        self.max_held = 0 if crowded else MAX_HELD
        super()._regulate()

    def _note(self) -> None:
        """It is known to all what this connection holds."""
        held = 0 if self._transport.is_closing() else self._answers.weight + self._intake.held
        self._orphans.live_bytes += held - self._noted
        self._noted = held

    def _gone(self) -> None:
        """A producer that has sent everything may hang up: what it sent is stored all the same, and
        a broker that stops waits for that."""
        left, before = list(self._waiting), self._under_way()
        if left or before:
            self._keep(self._gone_later(left, before))
        else:
            super()._gone()

    async def _gone_later(
        self, left: Sequence[Buffer], before: Sequence["asyncio.Future[Any]"]
    ) -> list[Buffer]:
        waits = [*left, *(each.messages for each in self._held)]
        size = ORPHAN_BYTES + self._answers.weight + sum(map(len, waits))
        self._orphans.bytes += size
        self._patient = self._orphans.bytes <= MOST_ORPHANED
        try:
            return await self._store(left, before)
        finally:
            self._orphans.bytes -= size
            super()._gone()

    def drain(self) -> None:
        """What came is stored, as nobody would send it again; and the connection ends once what is
        under way is answered."""
        left, before = list(self._waiting), self._under_way()
        super().drain()
        if left:
            self._keep(self._store(left, before))

    def _under_way(self) -> "list[asyncio.Future[Any]]":
        """What was sent for storing before this. Whoever waits for it does so from here on: two
        that looked later would wait for each other."""
        return [*self._appending, *self._slow]

    def _keep(self, work: Answer) -> "asyncio.Task[list[Buffer]]":
        """The work goes on whatever becomes of the connection."""
        task = self._loop.create_task(work)
        self._slow.add(task)
        task.add_done_callback(self._slow.discard)
        return task

    async def _store(
        self, frames: Sequence[Buffer], before: Sequence["asyncio.Future[Any]"]
    ) -> list[Buffer]:
        """What of these frames produces is stored, in order, behind what was under way before."""
        left = deque(frames)
        try:
            if before:
                await asyncio.wait(before)
            while self._holder is not None:
                await asyncio.wait([self._holder])
            while left:
                try:
                    found = parse(left.popleft())
                except BrokenFrame:
                    break
                if found.requests and isinstance(found.requests[0], Produce):
                    await self._append_later(list(found.requests), found, perf_counter())
        except asyncio.CancelledError:
            if left:
                log.warning(
                    "requests are dropped", client=self.client, count=len(left), reason=ENDS
                )
            raise
        return []

    def _begin(self, frame: Buffer) -> Answer | list[Buffer]:
        try:
            found = parse(frame)
        except BrokenFrame as error:
            raise CloseConnection(str(error)) from None
        began = perf_counter()
        if not found.requests or isinstance(found.requests[0], Produce):
            if self._holder is not None and found.requests:
                behind = [self._holder]
                work = self._append_later(list(found.requests), found, began, behind)
                return self._shielded(self._keep(work))
            later = [request for request in found.requests if not self._append(request)]
            if not later and found.kind != MULTIFETCH:
                self._count(found, "NONE", began)
                return []
            if later:
                return self._shielded(self._keep(self._append_later(later, found, began)))
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

    # Writing.

    def _append(self, request: Any) -> bool:
        """Whether the set is dealt with: on its way, or refused. False: its topic is not known."""
        try:
            future = produce.append(request, self._services)
        except (Refusal, BadBatch) as refusal:
            self._refused(request, str(refusal))
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
        if isinstance(error, produce.UNDONE):
            self._hold(request, str(error))
        elif error is not None:
            self._refused(request, str(error))
        elif done.result().error:
            self._stale(request, done.result())

    def _stale(self, request: Produce, reply: AppendReply) -> None:
        if reply.error in TOPIC_GONE:
            self._services.topics.drop()
        self._refused(request, ErrorCode(reply.error).message)

    async def _append_later(
        self,
        requests: list[Any],
        frame: Frame,
        began: float,
        behind: Sequence["asyncio.Future[Any]"] = (),
    ) -> list[Buffer]:
        """The slow way, topics looked up or created first: the client's next request waits."""
        left = deque(requests)
        try:
            if behind:
                await asyncio.wait(behind)
            await self._store_all(left)
        except asyncio.CancelledError:
            self._dropped(left)
            raise
        self._count(frame, "NONE", began)
        return []

    def _hold(self, request: Produce, reason: str) -> None:
        """The set is stored once Redis is there again; what comes behind it waits for that."""
        self._say_away(reason)
        self._held.append(request)
        if self._holder is None:
            self._holder = self._keep(self._store_held())

    async def _store_held(self) -> list[Buffer]:
        try:
            await self._store_all(self._held)
        except asyncio.CancelledError:
            self._dropped(self._held)
            raise
        finally:
            self._holder = None
        return []

    async def _store_all(self, left: "deque[Any]") -> None:
        """Nothing is left, however long Redis is away."""
        pause = LEAST_PAUSE_S
        while left:
            try:
                reply = await produce.append_to_new(left[0], self._services)
            except produce.Away as away:
                if self._patient:
                    self._say_away(str(away))
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(2 * pause, MOST_PAUSE_S)
                    continue
                self._refused(left.popleft(), str(away))
            except (Refusal, BadBatch, StoreError) as refusal:
                self._refused(left.popleft(), str(refusal))
            else:
                request = left.popleft()
                if reply.error:
                    self._stale(request, reply)
            pause, self._told = LEAST_PAUSE_S, False

    def _say_away(self, reason: str) -> None:
        if not self._told:
            self._told = True
            log.warning("produced sets wait for Redis", client=self.client, reason=reason)

    def _dropped(self, left: "deque[Any]") -> None:
        while left:
            self._refused(left.popleft(), ENDS)

    def _refused(self, request: Produce, reason: str) -> None:
        self._services.metrics.requests.add(1, "LegacyProduceSet", "REFUSED")
        log.warning(
            "a produced set is not stored",
            client=f"{self.host}:{self.port}",
            topic=request.topic,
            partition=request.partition,
            bytes=len(request.messages),
            reason=reason,
        )

    # Reading.

    async def _read(self, frame: Frame, began: float) -> list[Buffer]:
        if before := self._under_way():
            await asyncio.wait(before)
        parts = []
        left = fetch.room_for(self._services)
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
            if isinstance(request, Fetch):
                found = await fetch.fetch(request, self._services, self._reader, room)
                self._services.metrics.record_bytes_out.add(sum(map(len, found[1:])))
                return found, LegacyError.NO_ERROR
            return await fetch.offsets(request, self._services), LegacyError.NO_ERROR
        except Refusal as refusal:
            self._say(request, refusal)
            if isinstance(request, Offsets):
                return offsets_answer(refusal.error, []), refusal.error
            return messages_answer(refusal.error, []), refusal.error

    def _say(self, request: Fetch | Offsets, refusal: Refusal) -> None:
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
