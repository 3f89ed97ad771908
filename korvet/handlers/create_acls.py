"""CreateAcls (key 30), versions 0-3. There is no authorizer: SECURITY_DISABLED for each rule.

Versions
- v1 name patterns, v2 flexible, v3 as v2
Left out
- access rules: whoever reaches the port may do everything
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def create_acls(request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    refusal = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No authorizer is configured."
    )
    return CreateAclsResponse(results=[refusal] * len(request.creations))
