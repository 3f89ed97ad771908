"""Read and change users, ACL rules and quotas, as Kafka's tools do."""

from collections.abc import Iterable

import msgspec

from korvet.admin import requests as admin
from korvet.base.errors import ErrorCode
from korvet.console.pages.actions import Done
from korvet.console.visit import PageError, Visit, check_row
from korvet.security.acl import (
    ANY_NAME,
    CLUSTER_NAME,
    OPERATIONS_OF,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from korvet.security.credentials import DEFAULT_ITERATIONS, Mechanism, salt_password
from korvet.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from korvet.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

MAX_ROWS = 1_000
"""Max users, rules or quotas on a page."""


class UserRow(msgspec.Struct, frozen=True):
    """A user and the iterations of its SCRAM credentials by mechanism."""

    name: str
    mechanisms: dict[str, int]


class UsersPage(msgspec.Struct, frozen=True):
    """The users."""

    users: list[UserRow]
    total: int
    listeners: list[str]
    """The listeners that authenticate with SASL."""


async def load_users(visit: Visit) -> UsersPage:
    """Return the users; a user needs DESCRIBE on the cluster."""
    answer = await visit.call(DescribeUserScramCredentialsRequest(users=None))
    check_row(answer)
    rows = [
        UserRow(
            row.user,
            {Mechanism(each.mechanism).title: each.iterations for each in row.credential_infos},
        )
        for row in answer.results
    ]
    listeners = [each.name for each in visit.services.config.listeners if each.sasl]
    return UsersPage(rows[:MAX_ROWS], len(rows), listeners)


async def set_user(visit: Visit) -> Done:
    """Set a user's password, for both mechanisms."""
    name, password = visit.form.get("name", "").strip(), visit.form.get("password", "")
    if not name or not password:
        raise PageError(400, "A user needs a name and a password.")
    for mechanism in Mechanism:
        salted = salt_password(mechanism, password, DEFAULT_ITERATIONS)
        answer = await visit.call(admin.set_credential(name, mechanism, salted))
        check_row(answer.results[0])
    return Done("/users", f"The password of {name} was set.")


async def delete_user(visit: Visit) -> Done:
    """Delete all credentials of a user."""
    name = visit.form.get("name", "")
    for mechanism in Mechanism:
        answer = await visit.call(admin.set_credential(name, mechanism, None))
        if answer.results[0].error_code != ErrorCode.RESOURCE_NOT_FOUND:
            check_row(answer.results[0])
    return Done("/users", f"User {name} was deleted.")


# ACL rules.


class RuleRow(msgspec.Struct, frozen=True):
    """An ACL rule."""

    principal: str
    permission: str
    operation: str
    resource_type: str
    name: str
    pattern_type: str
    host: str


class RulesPage(msgspec.Struct, frozen=True):
    """The ACL rules."""

    rules: list[RuleRow]
    total: int
    is_enabled: bool
    """Whether authorizer.class.name is set: without it there are no rules."""
    super_users: str
    operations: dict[str, list[str]]
    """The operations of each resource type."""


async def load_rules(visit: Visit) -> RulesPage:
    """Return the ACL rules; a user needs DESCRIBE on the cluster."""
    operations = {
        kind.name: ["ALL", *sorted(each.name for each in found)]
        for kind, found in OPERATIONS_OF.items()
        if kind in _SERVED
    }
    if not visit.services.authorizer.enabled:
        return RulesPage([], 0, False, "", operations)
    answer = await visit.call(admin.find_rules())
    check_row(answer)
    rows = [
        RuleRow(
            rule.principal,
            rule.permission.name,
            rule.operation.name,
            rule.resource_type.name,
            rule.name,
            rule.pattern_type.name,
            rule.host,
        )
        for rule in admin.rules_in(answer)
    ]
    rows.sort(key=lambda row: (row.principal, row.resource_type, row.name, row.operation))
    super_users = visit.services.settings.text("super.users")
    return RulesPage(rows[:MAX_ROWS], len(rows), True, super_users, operations)


_SERVED = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


async def create_rule(visit: Visit) -> Done:
    """Add an ACL rule."""
    rule = _rule_in(visit)
    answer = await visit.call(admin.create_rules([rule]))
    check_row(answer.results[0])
    return Done("/acls", f"{_summary(rule)} was added.")


async def delete_rule(visit: Visit) -> Done:
    """Delete an ACL rule."""
    rule = _rule_in(visit)
    answer = await visit.call(admin.delete_rules([rule]))
    check_row(answer.filter_results[0])
    return Done("/acls", f"{_summary(rule)} was deleted.")


def _summary(rule: Rule) -> str:
    return f"{rule.principal}: {rule.permission.name} {rule.operation.name}"


def _rule_in(visit: Visit) -> Rule:
    """Return the rule of a form. Raises PageError."""
    form = visit.form

    def word(field: str, names: Iterable[str], default: str = "") -> str:
        text = form.get(field, default)
        if text not in names:
            raise PageError(400, f"A rule cannot have {text!r}: use one of {', '.join(names)}.")
        return text

    permission = Permission[word("permission", ("ALLOW", "DENY"), "ALLOW")]
    operation = Operation[word("operation", Operation.__members__)]
    kind = ResourceType[word("resource_type", ResourceType.__members__)]
    pattern = PatternType[word("pattern_type", ("LITERAL", "PREFIXED"), "LITERAL")]
    principal, name = form.get("principal", "").strip(), form.get("name", "").strip()
    if principal and ":" not in principal:
        principal = f"User:{principal}"
    if kind is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    if not principal or not name:
        raise PageError(400, "A rule needs a principal and the name of a resource.")
    host = form.get("host", "").strip() or ANY_NAME
    return Rule(kind, pattern, name, principal, host, operation, permission)


class QuotaRow(msgspec.Struct, frozen=True):
    """The quotas of an entity. An empty name is the default of its type."""

    entity: dict[str, str]
    values: dict[str, float]


class QuotasPage(msgspec.Struct, frozen=True):
    """The quotas."""

    quotas: list[QuotaRow]
    total: int


async def load_quotas(visit: Visit) -> QuotasPage:
    """Return the quotas; a user needs DESCRIBE_CONFIGS on the cluster."""
    answer = await visit.call(DescribeClientQuotasRequest(components=[], strict=False))
    check_row(answer)
    rows = [
        QuotaRow(
            {each.entity_type: each.entity_name or "" for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or []
    ]
    rows.sort(key=lambda row: sorted(row.entity.items()))
    return QuotasPage(rows[:MAX_ROWS], len(rows))


async def set_quota(visit: Visit) -> Done:
    """Set a quota of an entity, or remove it if the value is empty."""
    form = visit.form
    entity = {
        kind: None if form[kind] == "<default>" else form[kind]
        for kind in ("user", "client-id", "ip")
        if form.get(kind)
    }
    key, text = form.get("key", ""), form.get("value", "").strip()
    try:
        value = float(text) if text else None
    except ValueError:
        raise PageError(400, f"A quota is a number, not {text!r}.") from None
    answer = await visit.call(admin.alter_quotas(entity, [(key, value)]))
    check_row(answer.entries[0])
    return Done("/quotas", f"{key} {f'is {text} now' if text else 'was removed'}.")
