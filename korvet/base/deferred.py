"""Responses that wait for one reply, and requests that get no response."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar, cast

import msgspec

T = TypeVar("T")


class NotReady:
    """The type of NOT_READY."""


NOT_READY = NotReady()
"""What `Deferred.at_once` returns if the response needs more than its reply."""


class Deferred(msgspec.Struct, Generic[T], frozen=True):
    """A response that waits for one reply.

    A task per response costs more than the response: the caller that holds `reply` calls `at_once`,
    and awaits this object only if that returns NOT_READY.
    """

    reply: "asyncio.Future[Any]"
    at_once: Callable[[], T | NotReady]
    slowly: Callable[[], Awaitable[T]]

    def __await__(self) -> Generator[Any, Any, T]:
        return self.slowly().__await__()


class TimedAwaitable(Generic[T]):
    """An awaitable that measures the time in which it runs; waiting does not count.

    `seconds` is the time that was used before.
    """

    def __init__(self, inner: Awaitable[T], seconds: float = 0.0) -> None:
        self._inner = inner
        self.seconds = seconds

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._inner.__await__()
        step: Callable[[], Any] = partial(steps.send, None)
        while True:
            began = perf_counter()
            try:
                waited_for = step()
            except StopIteration as end:
                return cast(T, end.value)
            finally:
                self.seconds += perf_counter() - began
            try:
                step = partial(steps.send, (yield waited_for))
            except BaseException as error:
                step = partial(steps.throw, error)


class CloseWithoutResponse(Exception):
    """A request that expects no response failed: closing the connection is the only signal left.

    The message gives the reason, for the log.
    """
