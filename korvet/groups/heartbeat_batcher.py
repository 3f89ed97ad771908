"""Heartbeats that meet travel together: one script call for members of many groups.

Rules
- A heartbeat alone leaves with this turn's burst. Once two were unanswered at the same time, others
  wait until GAP_S has passed since the last burst: each burst wakes Redis, and us for its reply,
  which costs more than the heartbeats it brings. Where nobody else comes PATIENCE times in a row,
  nobody waits any more.
- Each member has its own answer. Where something is due in its group, the group is ticked first and
  the heartbeat goes again; where a call fails in Redis, each group goes by itself, so that a group
  whose keys are broken harms no other.
- In a cluster each group has a call of its own, in the same burst.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple, Protocol

from korvet.errors import ErrorCode
from korvet.keys import Keys
from korvet.scripts import group as scripts
from korvet.scripts.group import HeartbeatReply
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreUnavailable

GAP_S = 0.02
PATIENCE = 3
TOGETHER = 100
"""So many heartbeats go into one script call at most."""
TICK_FIRST = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Heartbeat(NamedTuple):
    """A member that says it is alive, and who waits for the error code."""

    group_id: str
    member: str
    instance: str
    generation: int
    answer: "asyncio.Future[int]"


class Ticker(Protocol):
    """What heartbeats need done for a group: korvet.groups.coordinator.Groups."""

    def unwatched(self, group_id: str, wait_ms: int) -> bool: ...
    async def watch(self, group_id: str, wait_ms: int) -> None: ...
    async def tick(self, group_id: str) -> int: ...


class HeartbeatBatcher:
    """The heartbeats that reach one process."""

    def __init__(self, store: AsyncStore, keys: Keys, groups: Ticker, gap_s: float = GAP_S) -> None:
        self._store = store
        self._keys = keys
        self._groups = groups
        self.gap_s = gap_s
        self._waiting: list[Heartbeat] = []
        self._guests: list[asyncio.Future[None]] = []
        self._unanswered = 0
        self._patience = 0
        self._planned = False
        self._not_before = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(
        self, group_id: str, member: str, instance: str, generation: int
    ) -> "asyncio.Future[int]":
        """The future gets the error code for that member."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(Heartbeat(group_id, member, instance, generation, answer))
        self._plan()
        return answer

    @asynccontextmanager
    async def burst(self) -> AsyncIterator[None]:
        """What is sent inside leaves with the next burst: the heartbeats of groups of the newer
        protocol, whose script takes one member."""
        guest: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._guests.append(guest)
        self._plan()
        try:
            await guest
            yield
        finally:
            self._unanswered -= 1

    def _plan(self) -> None:
        """One more is unanswered, and leaves when it may."""
        if self._unanswered:
            self._patience = PATIENCE
        self._unanswered += 1
        if self._planned:
            return
        self._planned = True
        loop = asyncio.get_running_loop()
        if self._patience and loop.time() < self._not_before:
            loop.call_at(self._not_before, self._flush)
        else:
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        beats, self._waiting = self._waiting, []
        guests, self._guests = self._guests, []
        self._planned = False
        self._not_before = asyncio.get_running_loop().time() + self.gap_s
        if len(beats) + len(guests) == 1 and self._patience:
            self._patience -= 1
        for guest in guests:
            if not guest.done():
                guest.set_result(None)
        if self._store.is_cluster:
            for rows in _by_group(beats):
                self._send(rows)
        else:
            for at in range(0, len(beats), TOGETHER):
                self._send(beats[at : at + TOGETHER])

    def _send(self, beats: list[Heartbeat]) -> None:
        call = scripts.heartbeat(self._keys, [beat[:4] for beat in beats])
        self._store.submit(call).add_done_callback(partial(self._answered, beats))

    def _answered(self, beats: list[Heartbeat], reply: "asyncio.Future[HeartbeatReply]") -> None:
        error = reply.exception()
        if error is not None:
            self._failed(beats, error)
            return
        errors, waits = reply.result().errors, reply.result().waits
        groups: dict[str, list[tuple[Heartbeat, int]]] = {}
        for beat, code in zip(beats, errors, strict=True):
            groups.setdefault(beat.group_id, []).append((beat, code))
        for (group_id, rows), wait_ms in zip(groups.items(), waits, strict=True):
            if rows[0][1] == TICK_FIRST or self._groups.unwatched(group_id, wait_ms):
                task = asyncio.create_task(self._attend(group_id, rows, wait_ms))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._answer(rows)

    def _failed(self, beats: list[Heartbeat], error: BaseException) -> None:
        groups = _by_group(beats)
        if isinstance(error, StoreUnavailable) or len(groups) == 1:
            self._refuse(beats, error)
            return
        for rows in groups:
            self._send(rows)

    async def _attend(self, group_id: str, rows: list[tuple[Heartbeat, int]], wait_ms: int) -> None:
        """What has to be done for the group first; then its members are answered."""
        beats = [beat for beat, _ in rows]
        try:
            if rows[0][1] == TICK_FIRST:
                await self._groups.tick(group_id)
                self._send(beats)
                return
            await self._groups.watch(group_id, wait_ms)
        except Exception as error:
            self._refuse(beats, error)
        else:
            self._answer(rows)

    def _answer(self, rows: list[tuple[Heartbeat, int]]) -> None:
        self._unanswered -= len(rows)
        for beat, code in rows:
            if not beat.answer.done():
                beat.answer.set_result(code)

    def _refuse(self, beats: list[Heartbeat], error: BaseException) -> None:
        self._unanswered -= len(beats)
        for beat in beats:
            if not beat.answer.done():
                beat.answer.set_exception(error)


def _by_group(beats: list[Heartbeat]) -> list[list[Heartbeat]]:
    groups: dict[str, list[Heartbeat]] = {}
    for beat in beats:
        groups.setdefault(beat.group_id, []).append(beat)
    return list(groups.values())
