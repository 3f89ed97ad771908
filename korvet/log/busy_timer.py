"""Measure the time spent in Redis, so that background work can throttle itself."""

import asyncio
from time import monotonic
from typing import Any, TypeVar

from korvet.scripts.call import Call, Reply
from korvet.store.calls import ReadCalls

R = TypeVar("R", bound=Reply)


class BusyTimer:
    """A store that measures how long its calls take; overlapping calls count once."""

    def __init__(self, store: ReadCalls) -> None:
        self._store = store
        self._began = self._spent = 0.0
        self._under_way = 0

    def submit_command(self, *command: Any) -> asyncio.Future[Any]:
        future = self._store.submit_command(*command)
        self._begin()
        future.add_done_callback(self._end)
        return future

    async def run(self, call: Call[R]) -> R:
        self._begin()
        try:
            return await self._store.run(call)
        finally:
            self._end()

    def spent(self) -> float:
        """Return the seconds spent in calls since the last call of this method."""
        spent, self._spent = self._spent, 0.0
        return spent

    def _begin(self) -> None:
        if not self._under_way:
            self._began = monotonic()
        self._under_way += 1

    def _end(self, _: object = None) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._spent += monotonic() - self._began
