"""DescribeAcls (key 29): the ACL rules that match a filter. Pattern types are from version 1."""

from typing import Annotated

from korvet.wire.messages.delete_acls import DeleteAclsFilter
from korvet.wire.schema import ErrorResponse, Field, Message, i8, request, response


@request(key=29, versions=(0, 3), flexible=2)
class DescribeAclsRequest(DeleteAclsFilter):
    """The filter of the rules."""


class AclDescription(Message):
    principal: str
    host: str
    operation: i8
    permission_type: i8


class DescribeAclsResource(Message):
    resource_type: i8
    resource_name: str
    pattern_type: Annotated[i8, Field(since=1)] = 3
    acls: list[AclDescription]


@response(DescribeAclsRequest)
class DescribeAclsResponse(ErrorResponse):
    resources: list[DescribeAclsResource] = []
