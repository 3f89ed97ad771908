"""Check that the index of ACL rules decides as a search of all rules does."""

from ipaddress import ip_address, ip_network
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.security.acl import (
    EVERY_OPERATION,
    EVERYONE,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from korvet.security.rule_index import RuleIndex

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
HERE = "10.1.2.3"

names = st.text("ab*", min_size=1, max_size=3)
hosts = st.sampled_from(["*", HERE, "10.0.0.0/8", "192.168.0.0/16", "::1", "fd00::/8"])
rules = st.builds(
    Rule,
    resource_type=st.sampled_from([TOPIC, GROUP]),
    pattern_type=st.sampled_from([LITERAL, PREFIXED]),
    name=names,
    principal=st.sampled_from(["User:a", "User:b", EVERYONE]),
    host=hosts,
    operation=st.sampled_from([op for op in Operation if op >= Operation.ALL]),
    permission=st.sampled_from([ALLOW, DENY]),
)
few = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def rule(
    name: str = "t",
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    pattern: PatternType = LITERAL,
    host: str = "*",
    principal: str = "User:a",
) -> Rule:
    return Rule(TOPIC, pattern, name, principal, host, operation, permission)


def names_resource(one: Rule, kind: ResourceType, name: str) -> bool:
    if one.resource_type != kind:
        return False
    if one.pattern_type == PREFIXED:
        return name.startswith(one.name)
    return one.name in (name, "*")


def names_client(one: Rule, principal: str, host: str) -> bool:
    if one.principal not in (principal, EVERYONE):
        return False
    if "/" in one.host:
        return ip_address(host) in ip_network(one.host)
    return one.host in ("*", host)


def model(
    all_: list[Rule], principal: str, host: str, operation: Operation, kind: ResourceType, name: str
) -> bool | None:
    """Return the decision of a search of all rules; None if no rule names the resource."""
    found = [one for one in all_ if names_resource(one, kind, name)]
    if not found:
        return None
    mine = [one for one in found if names_client(one, principal, host)]
    exact = [one for one in mine if one.operation in (operation, Operation.ALL)]
    if any(one.permission == DENY for one in exact):
        return False
    also = IMPLIED.get(operation, set())
    return any(one.permission == ALLOW for one in mine if one in exact or one.operation in also)


@few
@given(
    all_=st.lists(rules, max_size=12),
    principal=st.sampled_from(["User:a", "User:b", "User:c"]),
    host=st.sampled_from([HERE, "192.168.7.7", "::1", "fd00::9"]),
    name=names,
)
def test_the_index_decides_as_a_search_of_all_rules(
    all_: list[Rule], principal: str, host: str, name: str
) -> None:
    index = RuleIndex(all_)
    for kind in (TOPIC, GROUP):
        open_ = index.decide(principal, host, kind, name, EVERY_OPERATION)
        closed = index.decide(principal, host, kind, name, 0)
        for operation in Operation:
            if operation > Operation.ALL:
                expected = model(all_, principal, host, operation, kind, name)
                assert bool(closed >> operation & 1) == bool(expected), operation
                assert bool(open_ >> operation & 1) == (expected is not False), operation


@few
@given(all_=st.lists(rules, max_size=6))
def test_a_right_on_any_resource_is_found_by_trying_names(all_: list[Rule]) -> None:
    tried = {one.name + more for one in all_ for more in ("", "z", "zz")} | {"zzz"}
    expected = any(
        model(all_, "User:a", HERE, Operation.WRITE, TOPIC, name) for name in sorted(tried)
    )
    found = RuleIndex(all_).allows_on_any("User:a", HERE, TOPIC, Operation.WRITE)
    if expected != found:  # Kafka lets a literal DENY on `*` decide for all names
        assert any(
            one.name == "*" and one.pattern_type == LITERAL and one.permission == DENY
            for one in all_
        )


@pytest.mark.parametrize(
    ("rules", "name", "host", "operation", "allowed"),
    [
        ([rule()], "t", HERE, Operation.READ, True),
        ([rule()], "t", HERE, Operation.DESCRIBE, True),
        ([rule()], "t", HERE, Operation.WRITE, False),
        ([rule(), rule(operation=Operation.DESCRIBE, permission=DENY)], "t", HERE, 3, True),
        ([rule(), rule(operation=Operation.DESCRIBE, permission=DENY)], "t", HERE, 8, False),
        ([rule(operation=Operation.DESCRIBE), rule(permission=DENY)], "t", HERE, 8, True),
        ([rule(operation=Operation.ALTER_CONFIGS)], "t", HERE, 10, True),
        ([rule(operation=Operation.CREATE)], "t", HERE, Operation.DESCRIBE, False),
        ([rule("*", pattern=PREFIXED)], "t", HERE, Operation.READ, False),
        ([rule("*")], "t", HERE, Operation.READ, True),
        ([rule(host="10.0.0.0/8")], "t", HERE, Operation.READ, True),
        ([rule(host="10.0.0.0/8")], "t", "11.0.0.1", Operation.READ, False),
        ([rule(host="10.1.2.3")], "t", "::ffff:10.1.2.3", Operation.READ, True),
        ([rule(host="0:0:0:0:0:0:0:1")], "t", "::1", Operation.READ, True),
        ([rule(principal=EVERYONE)], "t", "", Operation.READ, True),
    ],
)
def test_rules_decide_as_in_kafka(
    rules: list[Rule], name: str, host: str, operation: int, allowed: bool
) -> None:
    found = RuleIndex(rules).decide("User:a", host, TOPIC, name, 0)
    assert bool(found >> operation & 1) == allowed


def test_ten_thousand_rules_do_not_slow_a_decision_down() -> None:
    many = [rule(f"topic-{number}", principal=f"User:{number % 500}") for number in range(9000)]
    many += [rule(f"p{number:03}-", pattern=PREFIXED) for number in range(1000)]
    index = RuleIndex(many)
    began = perf_counter()
    for number in range(1000):
        index.decide("User:a", HERE, TOPIC, f"p{number:03}-x", 0)
    assert (perf_counter() - began) / 1000 < 0.001
