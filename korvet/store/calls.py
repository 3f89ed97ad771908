"""The calls of a store from coroutines, as services use them, and the receivers of replies."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from korvet.scripts.call import Call, Reply

R = TypeVar("R", bound=Reply)
R_contra = TypeVar("R_contra", contravariant=True)
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


class ReplyWaiter(Protocol[R_contra]):
    """The receiver of a reply: a future, or an object that needs no event-loop iteration.

    Its methods are called where replies are read: they return quickly and raise nothing.
    """

    def done(self) -> bool:
        """Return whether it takes no more replies."""

    def set_result(self, result: R_contra, /) -> None:
        """Take the reply."""

    def set_exception(self, error: BaseException, /) -> None:
        """Take the error in place of the reply."""


def resolve(waiter: ReplyWaiter[R_contra], reply: R_contra) -> None:
    """Give the waiter its reply, unless it is done."""
    if not waiter.done():
        waiter.set_result(reply)


def fail(waiter: ReplyWaiter[R_contra], error: BaseException) -> None:
    """Give the waiter the error, unless it is done."""
    if not waiter.done():
        waiter.set_exception(error)
