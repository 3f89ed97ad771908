"""DescribeAcls. Return the ACL rules that a filter selects.

Behaviour
- ANY matches everything; pattern type MATCH with a name selects every rule that covers a resource
  of that name
- INVALID_REQUEST for a word that is unknown
- SECURITY_DISABLED without authorizer.class.name
Versions
- v1 name patterns, v2 flexible, v3 as v2
"""

from itertools import groupby

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.security.acl import Rule, filter_of
from korvet.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def describe_acls(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    authorizer = context.services.authorizer
    if not authorizer.enabled:
        return DescribeAclsResponse.of(ErrorCode.SECURITY_DISABLED, "No authorizer is configured.")
    try:
        wanted = filter_of(request)
    except ValueError as error:
        return DescribeAclsResponse.of(ErrorCode.INVALID_REQUEST, str(error))
    await authorizer.refresh()
    found = groupby(authorizer.find(wanted), _pattern)
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    AclDescription(
                        principal=rule.principal,
                        host=rule.host,
                        operation=rule.operation,
                        permission_type=rule.permission,
                    )
                    for rule in rules
                ],
            )
            for (kind, pattern, name), rules in found
        ]
    )


def _pattern(rule: Rule) -> tuple[int, int, str]:
    return rule.resource_type, rule.pattern_type, rule.name
