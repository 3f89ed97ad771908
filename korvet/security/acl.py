"""ACL rules: which principal may do which operation on which resource.

Rules
- Names and numbers are Kafka's. A rule is stored in `korvet:acls` as a JSON list of words.
- A rule that this version cannot read is skipped and logged: it names a resource type, a pattern
  type or an operation that no request of this version has.
"""

from collections.abc import Iterable
from enum import IntEnum
from ipaddress import ip_address, ip_network
from typing import Protocol

import msgspec

from korvet.base import logfmt

CLUSTER_NAME = "kafka-cluster"
"""Name of the only resource of type CLUSTER."""
ANY_NAME = "*"
"""Name of the literal pattern that matches every resource, and the host that is any host."""
EVERYONE = "User:*"

log = logfmt.get("acls")


class ResourceType(IntEnum):
    """Resource types with the numbers of Kafka's protocol."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Pattern types with the numbers of Kafka's protocol. ANY and MATCH occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Operations with the numbers of Kafka's protocol."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Permission types with the numbers of Kafka's protocol."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_OF: dict[ResourceType, frozenset[Operation]] = {
    ResourceType.TOPIC: frozenset((
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    )),
    ResourceType.GROUP: frozenset((
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )),
    ResourceType.CLUSTER: frozenset((
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    )),
    ResourceType.TRANSACTIONAL_ID: frozenset((
        Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT,
    )),
    ResourceType.DELEGATION_TOKEN: frozenset((Operation.DESCRIBE,)),
    ResourceType.USER: frozenset((Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS)),
}  # fmt: skip
"""Operations of each resource type, without ALL."""


def bits(operations: Iterable[Operation]) -> int:
    """Return the operations as a bit field, as in Kafka's responses."""
    return sum(1 << operation for operation in operations)


EVERY_OPERATION = bits(op for op in Operation if op > Operation.ALL)
SUPPORTED_BITS = {kind: bits(operations) for kind, operations in OPERATIONS_OF.items()}
"""Per resource type, the operations that Kafka's authorized-operations fields list."""
UNASKED = -(2**31)
"""Value of such a field if the request did not ask for it."""


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """An ACL rule."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission


class RuleFilter(msgspec.Struct, frozen=True):
    """A filter of rules, as DescribeAcls and DeleteAcls have it; None matches every value."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, rule: Rule) -> bool:
        """Return whether the rule is one that the filter selects."""
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self._matches_pattern(rule)
        )

    def _matches_pattern(self, rule: Rule) -> bool:
        """Return whether the rule's pattern is the filter's, or for MATCH covers its name."""
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, rule.pattern_type):
            return False
        if self.name is None or self.name == rule.name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if rule.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(rule.name)
        return rule.name == ANY_NAME


class FilterFields(Protocol):
    """The fields of a filter in Kafka's requests."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def filter_of(fields: FilterFields) -> RuleFilter:
    """Return the filter of a request. Raises ValueError for a word that is unknown."""
    found = RuleFilter(
        ResourceType(fields.resource_type_filter),
        PatternType(fields.pattern_type_filter),
        fields.resource_name_filter,
        fields.principal_filter,
        fields.host_filter,
        Operation(fields.operation),
        Permission(fields.permission_type),
    )
    words = (found.resource_type, found.pattern_type, found.operation, found.permission)
    if not all(words):
        raise ValueError("The filter has an UNKNOWN resource, pattern, operation or permission.")
    return found


def encode_rule(rule: Rule) -> bytes:
    """Encode a rule as stored in Redis."""
    words = msgspec.structs.astuple(rule)
    return msgspec.json.encode([e.name if isinstance(e, IntEnum) else e for e in words])


def decode_rule(raw: bytes) -> Rule:
    """Decode a rule that Redis stores. Raises ValueError."""
    try:
        kind, pattern, name, principal, host, operation, permission = msgspec.json.decode(
            raw, type=tuple[str, str, str, str, str, str, str]
        )
        return Rule(
            ResourceType[kind],
            PatternType[pattern],
            name,
            principal,
            host,
            Operation[operation],
            Permission[permission],
        )
    except (KeyError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from None


def read_rules(rows: Iterable[bytes]) -> list[Rule]:
    """Return the rules of stored rows, without those that this version cannot read."""
    rules = []
    for raw in rows:
        try:
            rules.append(decode_rule(raw))
        except ValueError as error:
            log.error("invalid ACL rule skipped", rule=raw, reason=str(error))
    return rules


def refusal_of(rule: Rule) -> str | None:
    """Return why a client may not create the rule, None if it may."""
    if rule.resource_type not in OPERATIONS_OF:
        return f"The resource type is {rule.resource_type.name}: a rule needs an exact one."
    if rule.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"The pattern type is {rule.pattern_type.name}: use LITERAL or PREFIXED."
    if rule.operation <= Operation.ANY:
        return f"The operation is {rule.operation.name}: a rule needs an exact one."
    if rule.permission not in (Permission.ALLOW, Permission.DENY):
        return f"The permission type is {rule.permission.name}: use ALLOW or DENY."
    return _refusal_of_names(rule)


def _refusal_of_names(rule: Rule) -> str | None:
    if not rule.name:
        return "The resource name is empty."
    if rule.resource_type == ResourceType.CLUSTER and rule.name != CLUSTER_NAME:
        return f"The only resource of type CLUSTER is {CLUSTER_NAME}."
    kind, colon, name = rule.principal.partition(":")
    if not (kind and colon and name):
        return "The principal must be TYPE:NAME, for example User:alice."
    if "/" in rule.host:
        try:
            ip_network(rule.host, strict=False)
        except ValueError:
            return f"The host {rule.host!r} is no network: use for example 10.0.0.0/8."
    return None if rule.host else "The host is empty: use * for any."


def canonical_host(host: str) -> str:
    """Return an address in its one spelling; an IPv4 address inside IPv6 is IPv4."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
