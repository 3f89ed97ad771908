"""DescribeAcls (key 29), versions 0-3. There is no authorizer: SECURITY_DISABLED, always.

Versions
- v1 name patterns, v2 flexible, v3 as v2
Left out
- access rules: whoever reaches the port may do everything
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
