"""Read and change users, ACL rules and quotas, as Kafka's tools do."""

import hashlib
import secrets

import msgspec

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
)
from korvet.security.credentials import DEFAULT_ITERATIONS, SALT_BYTES, Mechanism
from korvet.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from korvet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from korvet.wire.messages.create_acls import AclCreation, CreateAclsRequest
from korvet.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from korvet.wire.messages.describe_acls import DescribeAclsRequest
from korvet.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from korvet.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

MAX_ROWS = 1_000
"""Max users, rules or quotas on a page."""
_ANY = 1


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
        salt = secrets.token_bytes(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, DEFAULT_ITERATIONS)
        row = ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=DEFAULT_ITERATIONS,
            salt=salt,
            salted_password=salted,
        )
        answer = await visit.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[row]))
        check_row(answer.results[0])
    return Done("/users", f"The password of {name} was set.")


async def delete_user(visit: Visit) -> Done:
    """Delete all credentials of a user."""
    name = visit.form.get("name", "")
    for mechanism in Mechanism:
        row = ScramCredentialDeletion(name=name, mechanism=mechanism)
        answer = await visit.call(AlterUserScramCredentialsRequest(deletions=[row], upsertions=[]))
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
    answer = await visit.call(
        DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
    )
    check_row(answer)
    rows = [
        RuleRow(
            rule.principal,
            Permission(rule.permission_type).name,
            Operation(rule.operation).name,
            ResourceType(resource.resource_type).name,
            resource.resource_name,
            PatternType(resource.pattern_type).name,
            rule.host,
        )
        for resource in answer.resources
        for rule in resource.acls
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
    row = _rule_in(visit)
    answer = await visit.call(
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=ResourceType[row.resource_type],
                    resource_name=row.name,
                    resource_pattern_type=PatternType[row.pattern_type],
                    principal=row.principal,
                    host=row.host,
                    operation=Operation[row.operation],
                    permission_type=Permission[row.permission],
                )
            ]
        )
    )
    check_row(answer.results[0])
    return Done("/acls", f"{row.principal}: {row.permission} {row.operation} was added.")


async def delete_rule(visit: Visit) -> Done:
    """Delete an ACL rule."""
    row = _rule_in(visit)
    answer = await visit.call(
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=ResourceType[row.resource_type],
                    resource_name_filter=row.name,
                    pattern_type_filter=PatternType[row.pattern_type],
                    principal_filter=row.principal,
                    host_filter=row.host,
                    operation=Operation[row.operation],
                    permission_type=Permission[row.permission],
                )
            ]
        )
    )
    check_row(answer.filter_results[0])
    return Done("/acls", f"{row.principal}: {row.permission} {row.operation} was deleted.")


def _rule_in(visit: Visit) -> RuleRow:
    """Return the rule of a form. Raises PageError."""
    form = visit.form
    principal, name = form.get("principal", "").strip(), form.get("name", "").strip()
    kind = form.get("resource_type", "")
    if principal and ":" not in principal:
        principal = f"User:{principal}"
    row = RuleRow(
        principal,
        form.get("permission", "ALLOW"),
        form.get("operation", ""),
        kind,
        CLUSTER_NAME if kind == "CLUSTER" else name,
        form.get("pattern_type", "LITERAL"),
        form.get("host", "").strip() or ANY_NAME,
    )
    for text, names in (
        (row.permission, ("ALLOW", "DENY")),
        (row.operation, Operation.__members__),
        (row.resource_type, ResourceType.__members__),
        (row.pattern_type, ("LITERAL", "PREFIXED")),
    ):
        if text not in names:
            raise PageError(400, f"A rule cannot have {text!r}: use one of {', '.join(names)}.")
    if not row.principal or not row.name:
        raise PageError(400, "A rule needs a principal and the name of a resource.")
    return row


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
    entity = [
        EntityData(entity_type=kind, entity_name=None if form[kind] == "<default>" else form[kind])
        for kind in ("user", "client-id", "ip")
        if form.get(kind)
    ]
    key, text = form.get("key", ""), form.get("value", "").strip()
    try:
        value = float(text or 0)
    except ValueError:
        raise PageError(400, f"A quota is a number, not {text!r}.") from None
    entry = EntryData(entity=entity, ops=[OpData(key=key, value=value, remove=not text)])
    answer = await visit.call(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    check_row(answer.entries[0])
    return Done("/quotas", f"{key} {f'is {text} now' if text else 'was removed'}.")
