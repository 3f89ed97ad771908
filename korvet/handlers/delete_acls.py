"""DeleteAcls. Delete the ACL rules that filters select, and return them.

Behaviour
- filters as for DescribeAcls; a rule that several filters select is returned by each
- the change is in effect on this broker at the response, and within a second on all others
- per filter INVALID_REQUEST for a word that is unknown
- SECURITY_DISABLED without authorizer.class.name
Versions
- v1 name patterns, v2 flexible, v3 as v2
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.security.acl import Rule, filter_of
from korvet.security.authorizer import Authorizer
from korvet.topics.lifecycle import outcome
from korvet.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def delete_acls(request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    authorizer = context.services.authorizer
    if not authorizer.enabled:
        refusal = DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No authorizer is configured."
        )
        return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))
    await authorizer.refresh()
    found = [_select(row, authorizer) for row in request.filters]
    rules = {rule for rules in found if isinstance(rules, list) for rule in rules}
    error, reason = ErrorCode.NONE, None
    if rules:
        error, reason = await outcome(authorizer.delete(rules))
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=rules)
            if isinstance(rules, str)
            else DeleteAclsFilterResult(
                error_code=error,
                error_message=reason,
                matching_acls=[] if error else [_deleted(rule) for rule in rules],
            )
            for rules in found
        ]
    )


def _select(row: DeleteAclsFilter, authorizer: Authorizer) -> list[Rule] | str:
    """Return the rules that the filter selects, or why it cannot."""
    try:
        return authorizer.find(filter_of(row))
    except ValueError as error:
        return str(error)


def _deleted(rule: Rule) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=rule.resource_type,
        resource_name=rule.name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
