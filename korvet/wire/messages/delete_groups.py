"""DeleteGroups (key 42): delete groups without members, with their committed offsets."""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i16, request, response


@request(key=42, versions=(0, 3), flexible=2)
class DeleteGroupsRequest(Message):
    groups_names: list[str]


class DeletableGroupResult(Message):
    group_id: str
    error_code: i16 = 0
    error_message: Annotated[str | None, Field(since=3)] = None


@response(DeleteGroupsRequest)
class DeleteGroupsResponse(Response):
    results: list[DeletableGroupResult]
