"""DeleteAcls (key 31), versions 0-3. Return SECURITY_DISABLED: there is no authorizer.

Versions
- v1 name patterns, v2 flexible, v3 as v2
Left out
- ACLs: every client that can connect may do everything
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def delete_acls(request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    refusal = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No authorizer is configured.",
        matching_acls=[],
    )
    return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))
