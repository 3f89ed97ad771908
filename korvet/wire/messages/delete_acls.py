"""DeleteAcls (key 31): delete the ACL rules that match filters, and return them."""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i8, i16, request, response


class DeleteAclsFilter(Message):
    resource_type_filter: i8
    resource_name_filter: str | None
    pattern_type_filter: Annotated[i8, Field(since=1)] = 3
    principal_filter: str | None
    host_filter: str | None
    operation: i8
    permission_type: i8


@request(key=31, versions=(0, 3), flexible=2)
class DeleteAclsRequest(Message):
    filters: list[DeleteAclsFilter]


class DeleteAclsMatchingAcl(Message):
    error_code: i16 = 0
    error_message: str | None = None
    resource_type: i8
    resource_name: str
    pattern_type: Annotated[i8, Field(since=1)] = 3
    principal: str
    host: str
    operation: i8
    permission_type: i8


class DeleteAclsFilterResult(Message):
    error_code: i16 = 0
    error_message: str | None = None
    matching_acls: list[DeleteAclsMatchingAcl] = []


@response(DeleteAclsRequest)
class DeleteAclsResponse(Response):
    filter_results: list[DeleteAclsFilterResult]
