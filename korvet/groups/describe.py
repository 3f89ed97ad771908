"""Describe the groups of a request: the checks and the error rows of all types but `classic`."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from korvet.bounded import TOO_OFTEN, gather_named
from korvet.errors import ErrorCode
from korvet.topics.lifecycle import Refused

R = TypeVar("R")


async def describe_each(
    group_ids: Sequence[str], describe: Callable[[str], Awaitable[R]], row: Callable[..., R]
) -> list[R]:
    """Return the rows of a response; a group that `describe` refuses gets one with the error."""

    def refused(group_id: str, error: ErrorCode, reason: str) -> R:
        return row(error_code=error, error_message=reason or None, group_id=group_id)

    async def one(group_id: str) -> R:
        if not group_id:
            return refused(group_id, ErrorCode.INVALID_GROUP_ID, "")
        try:
            return await describe(group_id)
        except Refused as error:
            return refused(group_id, error.error, error.reason)

    return await gather_named(
        one, lambda group_id: refused(group_id, ErrorCode.INVALID_REQUEST, TOO_OFTEN), group_ids
    )


def require_topics(topics: Iterable[str], may_describe: Callable[[str], bool]) -> None:
    """Raise Refused unless the client may describe all topics of a group."""
    if not all(map(may_describe, topics)):
        raise Refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has topics that the client is not authorized to describe.",
        )
