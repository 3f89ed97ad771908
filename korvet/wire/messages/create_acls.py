"""CreateAcls (key 30): add ACL rules."""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i8, i16, request, response


class AclCreation(Message):
    resource_type: i8
    resource_name: str
    resource_pattern_type: Annotated[i8, Field(since=1)] = 3
    principal: str
    host: str
    operation: i8
    permission_type: i8


@request(key=30, versions=(0, 3), flexible=2)
class CreateAclsRequest(Message):
    creations: list[AclCreation]


class AclCreationResult(Message):
    error_code: i16 = 0
    error_message: str | None = None


@response(CreateAclsRequest)
class CreateAclsResponse(Response):
    results: list[AclCreationResult]
