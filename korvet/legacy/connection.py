"""One Kafka 0.7 client: its requests in order, its produced sets on their way side by side.

Rules
- PRODUCE has no answer. Sets for known topics leave for Redis at once, in the order they came; what
  reads afterwards on this connection waits for them, so that a client finds what it has sent.
- What cannot be stored is counted and logged with the client's address; only a frame that is no
  request of 0.7 ends the connection.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from time import perf_counter
from typing import Any, TypeAlias

from korvet import logs
from korvet.broker.connection import LARGE_ANSWERS, Buffer, Connection
from korvet.broker.dispatch import Hang
from korvet.context import Node
from korvet.errors import ErrorCode
from korvet.legacy import reads, writes
from korvet.legacy.frames import (
    FETCH,
    MULTIFETCH,
    NAMES,
    BrokenFrame,
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
from korvet.reading import PartitionReader
from korvet.scripts.log import AppendReply
from korvet.store.errors import StoreError
from korvet.wire.records import BadBatch

Answer: TypeAlias = Coroutine[Any, Any, list[Buffer]]
_STALE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

log = logs.get("legacy")


class LegacyConnection(Connection):
    """The same socket, limits and order as for newer clients; other requests."""

    speaks = "Kafka 0.7's protocol"
    max_control = 2**31 - 1

    def __init__(
        self,
        node: Node,
        connections: set[Connection],
        max_frame: int,
        most: int,
        most_per_host: int,
        reader: PartitionReader,
    ) -> None:
        super().__init__(node, connections, max_frame, most, most_per_host)
        self._reader = reader
        self._appending: set[asyncio.Future[AppendReply]] = set()
        self._slow: set[asyncio.Task[list[Buffer]]] = set()

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
        try:
            return await self._store(left, before)
        finally:
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
        if before:
            await asyncio.wait(before)
        for frame in frames:
            try:
                found = parse(frame)
            except BrokenFrame:
                break
            if found.requests and isinstance(found.requests[0], Produce):
                await self._append_later(list(found.requests), found, perf_counter())
        return []

    def _begin(self, frame: Buffer) -> Answer | list[Buffer]:
        try:
            found = parse(frame)
        except BrokenFrame as error:
            raise Hang(str(error)) from None
        began = perf_counter()
        if not found.requests or isinstance(found.requests[0], Produce):
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
            future = writes.append(request, self._node)
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
        if error is not None:
            self._refused(request, str(error))
        elif done.result().error:
            self._stale(request, done.result())

    def _stale(self, request: Produce, reply: AppendReply) -> None:
        if reply.error in _STALE:
            self._node.topics.drop()
        self._refused(request, ErrorCode(reply.error).message)

    async def _append_later(self, requests: list[Any], frame: Frame, began: float) -> list[Buffer]:
        """The slow way, topics looked up or created first: the client's next request waits."""
        for request in requests:
            try:
                reply = await writes.append_to_new(request, self._node)
            except (Refusal, BadBatch, StoreError) as refusal:
                self._refused(request, str(refusal))
                continue
            if reply.error:
                self._stale(request, reply)
        self._count(frame, "NONE", began)
        return []

    def _refused(self, request: Produce, reason: str) -> None:
        self._node.metrics.requests.add(1, "LegacyProduceSet", "REFUSED")
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
        left = reads.room_for(self._node)
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
                found = await reads.fetch(request, self._node, self._reader, room)
                self._node.metrics.record_bytes_out.add(sum(map(len, found[1:])))
                return found, LegacyError.NO_ERROR
            return await reads.offsets(request, self._node), LegacyError.NO_ERROR
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
        self._node.metrics.answered(name, outcome, perf_counter() - began)
