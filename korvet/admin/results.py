"""Result of one item of a request: NONE, or an error code with a message."""

from collections.abc import Awaitable

from korvet.base.errors import ErrorCode
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.topics.lifecycle import Refused


async def outcome(work: Awaitable[object]) -> tuple[ErrorCode, str | None]:
    """Await the work; return NONE, or the error and message of what refused it.

    Redis being unavailable is a retriable error.
    """
    try:
        await work
    except Refused as refused:
        return refused.error, refused.reason
    except StoreError as error:
        return store_failure(error), str(error)
    return ErrorCode.NONE, None


def store_failure(error: StoreError) -> ErrorCode:
    """Return the error code for a failure of Redis."""
    if isinstance(error, StoreUnavailable):
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.UNKNOWN_SERVER_ERROR
