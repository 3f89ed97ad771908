"""DescribeUserScramCredentials (key 50), version 0. Return no credentials: SCRAM is not supported.

Behaviour
- without names: an empty list; by name: RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE for a name that
  is listed twice
Left out
- SASL and SCRAM
"""

from collections import Counter

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    results = []
    for name, times in Counter(user.name for user in request.users or []).items():
        error = ErrorCode.RESOURCE_NOT_FOUND if times == 1 else ErrorCode.DUPLICATE_RESOURCE
        results.append(
            DescribeUserScramCredentialsResult(
                user=name, error_code=error, error_message=error.message, credential_infos=[]
            )
        )
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, results=results)
