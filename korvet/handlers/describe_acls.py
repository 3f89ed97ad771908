"""DescribeAcls (key 29), versions 0-3. Return SECURITY_DISABLED: there is no authorizer.

Versions
- v1 name patterns, v2 flexible, v3 as v2
Left out
- ACLs: every client that can connect may do everything
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


async def describe_acls(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No authorizer is configured.",
        resources=[],
    )
