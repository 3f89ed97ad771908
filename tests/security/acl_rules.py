"""Rules of the ACL matrix: their text form, and the sets that a probe is sent under.

A rule is `+topic=t1:read`: the sign allows or denies, `=` is literal and `~` prefixed. Suffixes
`@HOST` and `!PRINCIPAL` replace `*` and `User:alice`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from korvet.wire.messages.create_acls import AclCreation

ALICE = "User:alice"
ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
"""A filter that every rule matches."""
TYPES = {"topic": 2, "group": 3, "cluster": 4, "transactional_id": 5, "user": 7}
OPERATIONS = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
    "two_phase_commit": 15,
}
OPERATIONS_OF = {
    "topic": "read write create delete alter describe describe_configs alter_configs all",
    "group": "read delete describe describe_configs alter_configs all",
    "cluster": "create alter describe cluster_action describe_configs alter_configs"
    " idempotent_write all",
    "transactional_id": "describe write two_phase_commit all",
}
_RULE = re.compile(
    r"(?P<sign>[+-])(?P<type>\w+)(?P<pattern>[=~])(?P<name>[^:]*):(?P<operation>\w+)"
    r"(@(?P<host>[^!]+))?(!(?P<principal>.+))?"
)


def parse(text: str) -> AclCreation:
    """Return the rule that the text describes."""
    found = _RULE.fullmatch(text)
    assert found, text
    return AclCreation(
        resource_type=TYPES[found["type"]],
        resource_name=found["name"],
        resource_pattern_type=3 if found["pattern"] == "=" else 4,
        principal=found["principal"] or ALICE,
        host=found["host"] or "*",
        operation=OPERATIONS[found["operation"]],
        permission_type=3 if found["sign"] == "+" else 2,
    )


def rule_sets(needs: Sequence[str], resources: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the sets of rules to send a probe under, without repetitions.

    `needs` is the complete set. Each operation on each of `resources` is a set of one rule.
    """
    return list(dict.fromkeys(tuple(each) for each in _sets(needs, resources)))


def _sets(needs: Sequence[str], resources: Sequence[str]) -> Iterator[Sequence[str]]:
    yield ()
    for resource in resources:
        kind = resource.partition("=")[0]
        for operation in OPERATIONS_OF[kind].split():
            yield (f"+{resource}:{operation}",)
    yield needs
    for number, rule in enumerate(needs):
        yield (*needs[:number], *needs[number + 1 :])
        yield (*needs, "-" + rule[1:])
        yield (*needs, "-" + rule[1:] + "@10.9.9.9")
        yield (*needs, "-" + rule[1:] + "!User:bob")
        yield (*needs, "-" + rule[1:] + "!User:*")
        yield (*needs, "-" + rule.partition(":")[0][1:] + ":all")
        yield (*needs, "-" + rule.partition(":")[0][1:] + ":describe")
        if "cluster" not in rule:
            yield (*needs, "-" + _renamed(rule, "=*")[1:])
            yield (*needs, "-" + _prefixed(rule)[1:])
    if needs:
        yield [_prefixed(rule) for rule in needs]
        yield [_renamed(rule, "=*") for rule in needs]
        yield [_renamed(rule, "~*") for rule in needs]
        yield [_renamed(rule, "~wrong") for rule in needs]
        yield [_prefixed(rule).replace("~", "=") for rule in needs]
        for host in ("127.0.0.1", "10.9.9.9", "127.0.0.0/8"):
            yield [f"{rule}@{host}" for rule in needs]
        for principal in ("User:*", "User:bob", "Group:alice"):
            yield [f"{rule}!{principal}" for rule in needs]


def _prefixed(rule: str) -> str:
    name = rule.partition("=")[2].partition(":")[0]
    return _renamed(rule, f"~{name[:1]}")


def _renamed(rule: str, name: str) -> str:
    return rule if "cluster" in rule else re.sub(r"[=~][^:]*:", f"{name}:", rule, count=1)
