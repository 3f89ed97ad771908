"""Coalesce heartbeats: one script call for members of many groups.

Rules
- A single heartbeat is sent in the current event-loop iteration. Once two are unanswered at the
  same time, heartbeats wait until GAP_S after the last batch: each batch wakes Redis, and this
  process for the reply, which costs more than the heartbeats in it. After MAX_SINGLE batches of one
  heartbeat in a row they no longer wait.
- Each member has its own answer. If a deadline of its group has passed, the group is ticked and the
  heartbeat repeated. If a call fails in Redis, it is repeated per group: a group whose keys have
  wrong types affects no other group.
- In a cluster each group has its own call, in the same pipeline.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple, Protocol

from korvet.base.bounded import chunks
from korvet.scripts.call import Call, Signal
from korvet.scripts.calls.namespace import GroupHeartbeatReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreUnavailable

GAP_S = 0.02
"""Seconds between two batches."""
MAX_SINGLE = 3
"""Batches of one heartbeat in a row, after which heartbeats are sent at once."""
MAX_BATCH = 100
"""Max heartbeats per script call."""


class Heartbeat(NamedTuple):
    """A heartbeat of a classic member, and the future of its error code."""

    group_id: str
    member: str
    instance: str
    generation: int
    answer: "asyncio.Future[int]"


class Ticker(Protocol):
    """Methods of the GroupCoordinator that the batcher uses."""

    def needs_tick(self, group_id: str, wait_ms: int) -> bool: ...
    async def schedule_tick(self, group_id: str, wait_ms: int) -> None: ...
    async def tick(self, group_id: str) -> int: ...


class HeartbeatBatcher:
    """Batches the heartbeats that one process receives."""

    def __init__(self, store: AsyncStore, keys: Keys, groups: Ticker, gap_s: float = GAP_S) -> None:
        self._store = store
        self._keys = keys
        self._groups = groups
        self.gap_s = gap_s
        self._waiting: list[Heartbeat] = []
        self._entries: list[asyncio.Future[None]] = []
        self._unanswered = 0
        self._single_left = 0
        self._planned = False
        self._not_before = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(
        self, group_id: str, member: str, instance: str, generation: int
    ) -> "asyncio.Future[int]":
        """Add a heartbeat. The future gets the member's error code."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(Heartbeat(group_id, member, instance, generation, answer))
        self._plan_batch()
        return answer

    @asynccontextmanager
    async def next_batch(self) -> AsyncIterator[None]:
        """Enter with the next batch: its script takes one ConsumerGroupHeartbeat."""
        entry: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entries.append(entry)
        self._plan_batch()
        try:
            await entry
            yield
        finally:
            self._unanswered -= 1

    def _plan_batch(self) -> None:
        """Count one unanswered heartbeat more, and plan the batch that takes it."""
        if self._unanswered:
            self._single_left = MAX_SINGLE
        self._unanswered += 1
        if self._planned:
            return
        self._planned = True
        loop = asyncio.get_running_loop()
        if self._single_left and loop.time() < self._not_before:
            loop.call_at(self._not_before, self._flush)
        else:
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        heartbeats, self._waiting = self._waiting, []
        entries, self._entries = self._entries, []
        self._planned = False
        self._not_before = asyncio.get_running_loop().time() + self.gap_s
        if len(heartbeats) + len(entries) == 1 and self._single_left:
            self._single_left -= 1
        for entry in entries:
            if not entry.done():
                entry.set_result(None)
        if self._store.is_cluster:
            for rows in _by_group(heartbeats):
                self._send(rows)
        else:
            for some in chunks(heartbeats, MAX_BATCH):
                self._send(some)

    def _send(self, heartbeats: Sequence[Heartbeat]) -> None:
        call = heartbeats_of(self._keys, [heartbeat[:4] for heartbeat in heartbeats])
        self._store.submit(call).add_done_callback(partial(self._on_reply, heartbeats))

    def _on_reply(
        self, heartbeats: Sequence[Heartbeat], reply: "asyncio.Future[GroupHeartbeatReply]"
    ) -> None:
        error = reply.exception()
        if error is not None:
            self._on_error(heartbeats, error)
            return
        errors, waits = reply.result().errors, reply.result().waits
        groups: dict[str, list[tuple[Heartbeat, int]]] = {}
        for heartbeat, code in zip(heartbeats, errors, strict=True):
            groups.setdefault(heartbeat.group_id, []).append((heartbeat, code))
        for (group_id, rows), wait_ms in zip(groups.items(), waits, strict=True):
            if rows[0][1] == Signal.TICK_FIRST or self._groups.needs_tick(group_id, wait_ms):
                task = asyncio.create_task(self._tick_and_answer(group_id, rows, wait_ms))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._answer(rows)

    def _on_error(self, heartbeats: Sequence[Heartbeat], error: BaseException) -> None:
        groups = _by_group(heartbeats)
        if isinstance(error, StoreUnavailable) or len(groups) == 1:
            self._refuse(heartbeats, error)
            return
        for rows in groups:
            self._send(rows)

    async def _tick_and_answer(
        self, group_id: str, rows: list[tuple[Heartbeat, int]], wait_ms: int
    ) -> None:
        """Tick the group or schedule a tick, then answer its members."""
        heartbeats = [heartbeat for heartbeat, _ in rows]
        try:
            if rows[0][1] == Signal.TICK_FIRST:
                await self._groups.tick(group_id)
                self._send(heartbeats)
                return
            await self._groups.schedule_tick(group_id, wait_ms)
        except Exception as error:
            self._refuse(heartbeats, error)
        else:
            self._answer(rows)

    def _answer(self, rows: list[tuple[Heartbeat, int]]) -> None:
        self._unanswered -= len(rows)
        for heartbeat, code in rows:
            if not heartbeat.answer.done():
                heartbeat.answer.set_result(code)

    def _refuse(self, heartbeats: Sequence[Heartbeat], error: BaseException) -> None:
        self._unanswered -= len(heartbeats)
        for heartbeat in heartbeats:
            if not heartbeat.answer.done():
                heartbeat.answer.set_exception(error)


def _by_group(heartbeats: Iterable[Heartbeat]) -> list[list[Heartbeat]]:
    groups: dict[str, list[Heartbeat]] = {}
    for heartbeat in heartbeats:
        groups.setdefault(heartbeat.group_id, []).append(heartbeat)
    return list(groups.values())


def heartbeats_of(
    keys: Keys, heartbeats: Iterable[tuple[str, str, str, int]]
) -> Call[GroupHeartbeatReply]:
    """Return the call for heartbeats of group id, member, instance and generation. In a cluster all
    have one group."""
    indexes: dict[str, int] = {}
    rows = [
        (indexes.setdefault(group_id, len(indexes) + 1), member, instance, generation)
        for group_id, member, instance, generation in heartbeats
    ]
    touched = map(keys.group, indexes)
    return keys.group_heartbeat(
        [(k.group, k.members, k.instances, k.deadlines) for k in touched], rows
    )
