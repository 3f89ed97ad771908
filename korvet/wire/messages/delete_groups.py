"""DeleteGroups (key 42): delete groups without members, with their committed offsets."""

from typing import Annotated

from korvet.wire.schema import Field, Message, i16, i32, message


@message(key=42, versions=(0, 3), flexible=2, request=True)
class DeleteGroupsRequest(Message):
    groups_names: list[str]


class DeletableGroupResult(Message):
    group_id: str
    error_code: i16
    error_message: Annotated[str | None, Field(since=3)] = None


@message(key=42, versions=(0, 3), flexible=2, request=False)
class DeleteGroupsResponse(Message):
    throttle_time_ms: i32 = 0
    results: list[DeletableGroupResult]
