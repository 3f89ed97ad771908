"""Run background tasks until cancelled: repeat, restart and count them, by lease where they share.

Rules
- A task continues when Redis is available again: a StoreError is logged, and the task is repeated.
- Any other error is logged with its traceback, and the task restarted; other tasks are unaffected.
"""

import os
import uuid
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter, time

import anyio

from korvet.base import logfmt
from korvet.base.metrics import Labels, Metrics
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError
from korvet.store.notifications import Notifier

RESTART_S = 5.0
"""Seconds until a failed background task is restarted."""

Action = Callable[[], Awaitable[None]]

logger = logfmt.get("broker.background")


class TaskRunner:
    """Runs the background tasks of one broker process."""

    def __init__(self, notifier: Notifier, metrics: Metrics) -> None:
        self._notifier = notifier
        self._metrics = metrics
        self._succeeded: dict[Labels, float] = {}
        metrics.task_times.ask = lambda: self._succeeded

    async def run(self, tasks: Mapping[str, Action]) -> None:
        """Run the tasks, by name, until cancelled."""
        async with anyio.create_task_group() as group:
            for name, task in tasks.items():
                group.start_soon(self._restart_on_error, name, task)

    async def _restart_on_error(self, name: str, task: Action) -> None:
        while True:
            try:
                await task()
            except Exception as error:
                self._metrics.task_errors.add(1, name)
                logger.exception("background task failed", error, task=name)
                await anyio.sleep(RESTART_S)

    async def repeat(self, name: str, seconds: float, action: Action) -> None:
        """Run the action after each interval."""
        while True:
            await anyio.sleep(seconds)
            await self.run_once(name, action)

    async def follow(self, name: str, channel: str, seconds: float, refresh: Action) -> None:
        """Apply what any broker changed: after each message, and after each interval."""
        async with self._notifier.listen([channel]) as changes:
            while True:
                await self.run_once(name, refresh)
                await changes.wait(seconds)

    async def run_once(self, name: str, action: Action) -> None:
        """Run the action, and count it."""
        began = perf_counter()
        try:
            await action()
        except StoreError as error:
            self._metrics.task_errors.add(1, name)
            log_retry(name, error)
        else:
            self._metrics.task_seconds.of(name).observe(perf_counter() - began)
            self._succeeded[(name,)] = time()


def log_retry(task: str, error: StoreError) -> None:
    """Log that the task failed and will be repeated."""
    logger.warning_again("background task failed, retrying", task=task, reason=str(error))


class Leases:
    """The leases of one broker process, in Redis. Those of a process that died expire."""

    def __init__(self, store: AsyncStore, keys: Keys, node_id: int) -> None:
        self._store = store
        self._keys = keys
        self.holder = f"{node_id}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    async def hold(self, name: str, seconds: float) -> bool:
        """Acquire or renew the lease for that long; return whether this process holds it."""
        ttl_ms = max(1, int(seconds * 1000))
        call = self._keys.broker_lease(name=name, holder=self.holder, ttl_ms=ttl_ms)
        return (await self._store.run(call)).held == 1

    async def release(self, name: str) -> None:
        """End the lease, if this process holds it, so that another can take over at once."""
        await self.hold(name, 0.001)
