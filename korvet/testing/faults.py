"""Errors that a test broker returns in place of handling a request."""

from collections import deque
from collections.abc import Awaitable
from difflib import get_close_matches

from korvet.apis import TABLE, Api
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.broker.error_responses import refused
from korvet.wire.schema import Message


class Faults:
    """The errors still to be returned, by API. Thread-safe: a test and the broker share it."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[ErrorCode]] = {}

    def add(self, api: str, error: ErrorCode | str, times: int = 1) -> None:
        """Return `error` to the next `times` requests of an API, such as `Produce`."""
        names = [row.name for row in TABLE]
        if api not in names:
            raise _unknown("API", api, names)
        codes = [code.name for code in ErrorCode]
        if isinstance(error, str) and error not in codes:
            raise _unknown("error code", error, codes)
        code = ErrorCode[error] if isinstance(error, str) else error
        self._waiting.setdefault(api, deque()).extend([code] * times)

    def clear(self) -> None:
        """Forget all errors that no request has met."""
        self._waiting.clear()

    def __bool__(self) -> bool:
        """Return whether any error is still to be returned."""
        return any(self._waiting.values())

    def response(self, api: Api, request: Message) -> Awaitable[Message | None] | None:
        """Return the API's response with the next error, or None if there is none for it."""
        waiting = self._waiting.get(api.name)
        return _respond(api, request, waiting.popleft()) if waiting else None


async def _respond(api: Api, request: Message, code: ErrorCode) -> Message:
    if api.name == "Produce" and getattr(request, "acks", None) == 0:
        # With acks=0 an error closes the connection, as in Kafka.
        raise CloseWithoutResponse(f"a test asked for {code.name}")
    return refused(api, request, code)


def _unknown(kind: str, name: str, known: list[str]) -> ValueError:
    near = get_close_matches(name, known, 1)
    return ValueError(f"There is no {kind} {name!r}{f'; did you mean {near[0]}?' if near else '.'}")
