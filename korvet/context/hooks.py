"""Protocols of what higher layers give to the services: interceptor, tracing, API table."""

from collections.abc import Awaitable
from typing import Any, Protocol


class Interceptor(Protocol):
    """Answers requests in place of their handlers: fault injection for tests."""

    def __bool__(self) -> bool:
        """Return whether any request is to be intercepted."""

    def response(self, api: Any, request: Any) -> Awaitable[Any] | None:
        """Return the response to a request of `api`, or None to let its handler run."""


class Tracing(Protocol):
    """Calls handlers in spans."""

    def handle(self, row: Any, request: Any, context: Any) -> Awaitable[Any]:
        """Call the handler of the API and return its response to await."""


class ApiRow(Protocol):
    """Fields of an API table row that ApiVersions uses."""

    @property
    def key(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def versions(self) -> tuple[int, int]: ...
