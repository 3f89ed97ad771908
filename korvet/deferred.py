"""Responses that wait for one reply, and requests that get no response."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

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


class CloseWithoutResponse(Exception):
    """A request that expects no response failed: closing the connection is the only signal left.

    The message gives the reason, for the log.
    """
