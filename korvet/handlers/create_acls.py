"""CreateAcls. Create ACL rules.

Behaviour
- the rules are in effect on this broker at the response, and within a second on all others
- per rule INVALID_REQUEST: an empty name or host, a principal that is not TYPE:NAME, a cluster
  other than kafka-cluster, a network that is none, a filter's word in place of an exact one
- a rule that exists is no error
- SECURITY_DISABLED without authorizer.class.name
Versions
- v1 name patterns, v2 flexible, v3 as v2
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.security.acl import Operation, PatternType, Permission, ResourceType, Rule, refusal_of
from korvet.topics.lifecycle import outcome
from korvet.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

DISABLED = "No authorizer is configured."


async def create_acls(request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    authorizer = context.services.authorizer
    if not authorizer.enabled:
        refusal = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=DISABLED)
        return CreateAclsResponse(results=[refusal] * len(request.creations))
    rules = [_rule(row) for row in request.creations]
    valid = [rule for rule in rules if isinstance(rule, Rule)]
    error, reason = await outcome(authorizer.create(valid)) if valid else (ErrorCode.NONE, None)
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=error, error_message=reason)
            if isinstance(rule, Rule)
            else AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=rule)
            for rule in rules
        ]
    )


def _rule(row: AclCreation) -> Rule | str:
    """Return the rule, or why the client may not create it."""
    try:
        rule = Rule(
            ResourceType(row.resource_type),
            PatternType(row.resource_pattern_type),
            row.resource_name,
            row.principal,
            row.host,
            Operation(row.operation),
            Permission(row.permission_type),
        )
    except ValueError as error:
        return str(error)
    return refusal_of(rule) or rule
