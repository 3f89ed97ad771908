"""DescribeUserScramCredentials. Return mechanisms and iterations of users.

Behaviour
- without names: all users; by name: RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE for a name that is
  listed twice
- salts and keys are never returned
"""

from collections import Counter
from collections.abc import Mapping

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.security.credentials import Mechanism
from korvet.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    users = context.services.users
    times = Counter(user.name for user in request.users or ())
    rows = await users.describe(list(times)) if times else await users.list()
    results = []
    for name, found in rows.items():
        error = ErrorCode.NONE if found else ErrorCode.RESOURCE_NOT_FOUND
        if times[name] > 1:
            error = ErrorCode.DUPLICATE_RESOURCE
        results.append(_result(name, {} if error else found, error))
    return DescribeUserScramCredentialsResponse(results=results)


def _result(
    name: str, iterations: Mapping[Mechanism, int], error: ErrorCode
) -> DescribeUserScramCredentialsResult:
    infos = [
        CredentialInfo(mechanism=int(each), iterations=iterations[each]) for each in iterations
    ]
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=error,
        error_message=error.message if error else None,
        credential_infos=infos,
    )
