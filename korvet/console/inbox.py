"""Connections and pages of the ops port that the broker gives to the thread of the console."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from korvet.broker.ops.connection import OpsConnection
from korvet.broker.ops.http import Answer, Page, answer_on_port
from korvet.broker.ops.metric_pages import Snapshots

Deliver = Callable[[OpsConnection, bytes], object]
"""Serves a connection, of which the first bytes were read."""
T = TypeVar("T")


class BrokerPages:
    """The pages of the ops port, asked from the console's event loop."""

    def __init__(self, page: Page, loop: asyncio.AbstractEventLoop) -> None:
        self._page = page
        self._loop = loop

    async def answer(self, path: str) -> Answer:
        return await self._ask(answer_on_port(self._page, path))

    async def snapshots(self) -> Snapshots:
        """Return the metrics of the broker's processes."""
        return await self._ask(self._page.snapshots())

    async def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(question, self._loop))


class Inbox:
    """Connections that the broker's thread hands over to the console's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[OpsConnection, bytes]] = []
        self._deliver: Deliver | None = None

    def put(self, connection: OpsConnection, request: bytes) -> None:
        """Hand over a connection, of which `request` was read."""
        with self._lock:
            if self._deliver is None:
                self._waiting.append((connection, request))
            else:
                self._deliver(connection, request)

    def open(self, deliver: Deliver) -> None:
        """Deliver what waits, and all that follows. `deliver` may be called in any thread."""
        with self._lock:
            self._deliver = deliver
            for each in self.take():
                deliver(*each)

    def take(self) -> list[tuple[OpsConnection, bytes]]:
        """Return the connections that wait."""
        waiting, self._waiting = self._waiting, []
        return waiting
