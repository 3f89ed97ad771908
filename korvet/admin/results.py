"""How one thing that a request asks for ended: done, or refused with a code and a sentence."""

from collections.abc import Awaitable

from korvet.errors import ErrorCode
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.topics.lifecycle import Refused


async def outcome(work: Awaitable[object]) -> tuple[ErrorCode, str | None]:
    """NONE once the work is done; what refused it otherwise. Redis's absence is retriable."""
    try:
        await work
    except Refused as refused:
        return refused.error, refused.reason
    except StoreError as error:
        return store_failure(error), str(error)
    return ErrorCode.NONE, None


async def refuse(error: ErrorCode, reason: str) -> None:
    """Always Refused."""
    raise Refused(error, reason)


def store_failure(error: StoreError) -> ErrorCode:
    """What a client is told when Redis did not do it."""
    if isinstance(error, StoreUnavailable):
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.UNKNOWN_SERVER_ERROR
