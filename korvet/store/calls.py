"""The calls of a store from coroutines, as services use them; tests may pass a fake."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from korvet.scripts.call import Call, Reply

R = TypeVar("R", bound=Reply)
IS_INLINE = ContextVar("IS_INLINE", default=False)
"""True in a coroutine that runs without an event loop, over a store that never suspends."""


class ReadCalls(Protocol):
    """The calls that reading a log uses."""

    async def run(self, call: Call[R]) -> R: ...
    def submit_command(self, *command: Any) -> asyncio.Future[Any]: ...


class AsyncCalls(ReadCalls, Protocol):
    """The calls of AsyncStore and of the library's stores."""

    @property
    def is_cluster(self) -> bool: ...
    async def run_many(self, calls: Iterable[Call[R]]) -> list[R]: ...
    async def command(self, *command: Any) -> Any: ...
    async def info(self, section: str) -> Mapping[str, tuple[Any, Mapping[str, str]]]: ...
    def run_of(self, key: str) -> str: ...
    async def until_durable(
        self, key: str, run: str, topics: Collection[str] | None = None
    ) -> None: ...
