"""An index of ACL rules that decides in a few lookups, however many rules there are.

Rules
- A matching DENY wins over every ALLOW. Without a matching rule the answer is no; if no rule at all
  names the resource, it is what `allow.everyone.if.no.acl.found` says.
- An ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE, one of ALTER_CONFIGS implies
  DESCRIBE_CONFIGS. A DENY implies nothing.
- A host is an address, `*`, or a network such as 10.0.0.0/8, which Kafka stores but never matches.
- A literal `*` is every resource; a prefix `*` is the character.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from korvet.security.acl import (
    ANY_NAME,
    EVERY_OPERATION,
    EVERYONE,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    bits,
    canonical_host,
)

_IMPLIES_DESCRIBE = bits((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER))
_IMPLIES_DESCRIBE_CONFIGS = 1 << Operation.ALTER_CONFIGS


def operation_bits(rule: Rule) -> int:
    """Return the operations that the rule allows or denies, those it implies included."""
    if rule.operation == Operation.ALL:
        return EVERY_OPERATION
    found = 1 << rule.operation
    if rule.permission == Permission.ALLOW:
        if found & _IMPLIES_DESCRIBE:
            found |= 1 << Operation.DESCRIBE
        if found & _IMPLIES_DESCRIBE_CONFIGS:
            found |= 1 << Operation.DESCRIBE_CONFIGS
    return found


class _HostBits:
    """Operations that one principal is allowed and denied on one pattern, by host."""

    __slots__ = ("_exact", "_networks")

    def __init__(self) -> None:
        self._exact: dict[str, list[int]] = {}
        self._networks: dict[IPv4Network | IPv6Network, list[int]] = {}

    def add(self, rule: Rule) -> None:
        denies = rule.permission == Permission.DENY
        if "/" in rule.host:
            row = self._networks.setdefault(ip_network(rule.host, strict=False), [0, 0])
        else:
            row = self._exact.setdefault(canonical_host(rule.host), [0, 0])
        row[denies] |= operation_bits(rule)

    def of(self, host: str, address: IPv4Address | IPv6Address | None) -> tuple[int, int]:
        """Return the bits allowed and denied for a client of that host."""
        allowed = denied = 0
        for name in (host, ANY_NAME):
            row = self._exact.get(name)
            if row is not None:
                allowed |= row[0]
                denied |= row[1]
        if address is not None:
            for network, row in self._networks.items():
                if address in network:
                    allowed |= row[0]
                    denied |= row[1]
        return allowed, denied


_Pattern = dict[str, _HostBits]
"""The rules of one pattern, by principal."""


class RuleIndex:
    """ACL rules by resource type, pattern and principal."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._literal: dict[tuple[int, str], _Pattern] = {}
        self._prefixed: dict[tuple[int, str], _Pattern] = {}
        lengths: dict[int, set[int]] = {}
        for rule in rules:
            patterns = self._literal
            if rule.pattern_type == PatternType.PREFIXED:
                patterns = self._prefixed
                lengths.setdefault(rule.resource_type, set()).add(len(rule.name))
            pattern = patterns.setdefault((rule.resource_type, rule.name), {})
            pattern.setdefault(rule.principal, _HostBits()).add(rule)
        self._lengths = {kind: sorted(found) for kind, found in lengths.items()}

    def decide(self, principal: str, host: str, kind: ResourceType, name: str, no_rule: int) -> int:
        """Return the operations that a client may do on a resource, as a bit field.

        `no_rule` are those it may do if no rule names the resource.
        """
        host, address = _host(host)
        allowed = denied = 0
        found = False
        for pattern in self._patterns_of(kind, name):
            found = True
            more, less = _bits_in(pattern, principal, host, address)
            allowed |= more
            denied |= less
        return allowed & ~denied if found else no_rule

    def _patterns_of(self, kind: ResourceType, name: str) -> Iterator[_Pattern]:
        for literal in (name, ANY_NAME):
            pattern = self._literal.get((kind, literal))
            if pattern is not None:
                yield pattern
        for length in self._lengths.get(kind, ()):
            if length > len(name):
                break
            pattern = self._prefixed.get((kind, name[:length]))
            if pattern is not None:
                yield pattern

    def allows_on_any(
        self, principal: str, host: str, kind: ResourceType, operation: Operation
    ) -> bool:
        """Return whether there is a resource of the type on which a rule allows the operation.

        The resource need not exist. It takes time in proportion to the rules.
        """
        host, address = _host(host)
        bit = 1 << operation

        def patterns(of: dict[tuple[int, str], _Pattern], denied: bool) -> set[str]:
            return {
                name
                for (type_, name), pattern in of.items()
                if type_ == kind and _bits_in(pattern, principal, host, address)[denied] & bit
            }

        denied_names, denied_prefixes = (
            patterns(of, True) for of in (self._literal, self._prefixed)
        )
        if ANY_NAME in denied_names:
            return False
        allowed = patterns(self._literal, False) - denied_names
        if ANY_NAME in allowed:
            return True
        allowed |= patterns(self._prefixed, False)
        return any(
            not any(name[:size] in denied_prefixes for size in range(1, len(name) + 1))
            for name in allowed
        )


def _bits_in(
    pattern: _Pattern, principal: str, host: str, address: IPv4Address | IPv6Address | None
) -> tuple[int, int]:
    allowed = denied = 0
    for one in (principal, EVERYONE):
        rules = pattern.get(one)
        if rules is not None:
            more, less = rules.of(host, address)
            allowed |= more
            denied |= less
    return allowed, denied


def _host(host: str) -> tuple[str, IPv4Address | IPv6Address | None]:
    """Return the host in its one spelling, and as an address if it is one."""
    host = canonical_host(host)
    try:
        return host, ip_address(host)
    except ValueError:
        return host, None
