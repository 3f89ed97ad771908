"""AlterUserScramCredentials. Set or delete SCRAM credentials of users.

Behaviour
- the change is in effect on all brokers at once; open connections stay open
- per user: DUPLICATE_RESOURCE for a user that is named twice, UNACCEPTABLE_CREDENTIAL for an empty
  name or iterations outside 4096 to 16384, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND for a
  credential that does not exist
- stored are salt, iterations and two keys, never the password or the salted password
Left out
- delegation tokens
"""

from collections import Counter

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.security.credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Credential,
    Mechanism,
    from_salted,
)
from korvet.security.users import ANY, PRESENT, Users
from korvet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

_Change = ScramCredentialDeletion | ScramCredentialUpsertion
_KNOWN = {int(each) for each in Mechanism}


async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: Context
) -> AlterUserScramCredentialsResponse:
    changes: list[_Change] = [*request.deletions, *request.upsertions]
    times = Counter(change.name for change in changes)
    results = []
    for change in {change.name: change for change in changes}.values():
        error, reason = _refusal(change, times[change.name])
        if not error:
            error = await _apply(change, context.services.users)
            reason = "The user has no credential of this mechanism." if error else None
        results.append(
            AlterUserScramCredentialsResult(
                user=change.name, error_code=error, error_message=reason
            )
        )
    return AlterUserScramCredentialsResponse(results=results)


def _refusal(change: _Change, times: int) -> tuple[ErrorCode, str | None]:
    if times > 1:
        reason = "A user's credentials can be altered only once in a request."
        return ErrorCode.DUPLICATE_RESOURCE, reason
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "The user name must not be empty."
    if change.mechanism not in _KNOWN:
        reason = f"Unknown SCRAM mechanism {change.mechanism}."
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, reason
    if isinstance(change, ScramCredentialUpsertion):
        return _unacceptable(change)
    return ErrorCode.NONE, None


def _unacceptable(change: ScramCredentialUpsertion) -> tuple[ErrorCode, str | None]:
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        reason = f"Iterations must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}."
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, reason
    return ErrorCode.NONE, None


async def _apply(change: _Change, users: Users) -> ErrorCode:
    mechanism = Mechanism(change.mechanism)
    credential: Credential | None = None
    if isinstance(change, ScramCredentialUpsertion):
        credential = from_salted(mechanism, change.salted_password, change.salt, change.iterations)
    condition = PRESENT if credential is None else ANY
    return await users.alter(change.name, {mechanism: credential}, condition)
