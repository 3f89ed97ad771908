"""Arguments of the requests in the tables of ACL filters, SCRAM users and quotas."""

from collections.abc import Iterator
from typing import Any

from korvet.wire.messages.create_acls import AclCreation

STORED = (
    "+topic=t1:read",
    "+topic=t1:write@10.0.0.1",
    "-topic=t1:read!User:bob",
    "+topic~t:read",
    "+topic~t1x:read",
    "+topic=*:describe",
    "+topic~*:describe",
    "+group=t1:read",
    "+group=*:all",
    "+cluster=kafka-cluster:alter",
    "+transactional_id~x:write",
    "+user=alice:describe",
)
"""Rules that filters select from."""
SALT = bytes(16)


def acl_filters() -> Iterator[dict[str, Any]]:
    """Yield changes of the filter that matches everything."""
    for kind in range(9):
        yield {"resource_type_filter": kind}
    for pattern in range(6):
        yield {"pattern_type_filter": pattern}
        for name in ("t1", "t", "*", "t1xy", "", "unknown"):
            for kind in (1, 2):
                yield {
                    "resource_type_filter": kind,
                    "pattern_type_filter": pattern,
                    "resource_name_filter": name,
                }
    for principal in ("User:alice", "User:bob", "User:*", "alice", ""):
        yield {"principal_filter": principal}
    for host in ("*", "10.0.0.1", "10.0.0.2", ""):
        yield {"host_filter": host}
    for operation in (*range(17), 77):
        yield {"operation": operation}
    for permission in (*range(5), 77):
        yield {"permission_type": permission}
    yield {"resource_type_filter": 77}
    yield {"pattern_type_filter": 77}


def acl_creations() -> Iterator[dict[str, Any]]:
    """Yield changes of a valid rule."""
    yield {}
    for field, values in {
        "resource_type": (*range(9), 77),
        "resource_pattern_type": (*range(6), 77),
        "operation": (*range(17), 77),
        "permission_type": (*range(5), 77),
        "resource_name": ("", "*", "a b", "x" * 300),
        "principal": ("", "alice", ":alice", "User:", "User:*", "Group:g", "User:a:b"),
        "host": ("", "*", "10.0.0.0/8", "localhost", "not a host"),
    }.items():
        for value in values:
            yield {field: value}
    for kind, name in ((4, "kafka-cluster"), (4, "other"), (4, "*"), (6, "token"), (7, "User:a")):
        for operation in range(2, 16):
            yield {"resource_type": kind, "resource_name": name, "operation": operation}
    for kind in (2, 3, 5):
        for operation in range(2, 16):
            yield {"resource_type": kind, "operation": operation}
    for pattern in (3, 4):
        yield {
            "resource_type": 4,
            "resource_name": "kafka-cluster",
            "operation": 8,
            "resource_pattern_type": pattern,
        }


def creation(change: dict[str, Any]) -> AclCreation:
    """Return a valid rule with a change."""
    valid: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "made",
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**{**valid, **change})


def scram_changes() -> Iterator[tuple[list[tuple[str, int]], list[tuple[str, int, int]]]]:
    """Yield deletions (user, mechanism) and upsertions (user, mechanism, iterations)."""
    yield [], [("a", 1, 4096)]
    yield [], [("a", 2, 16384)]
    for iterations in (0, 1, 4095, 16385):
        yield [], [("a", 1, iterations)]
    for mechanism in (-1, 0, 3, 77):
        yield [], [("a", mechanism, 4096)]
        yield [("a", mechanism)], []
    yield [], [("", 1, 4096)]
    yield [("", 1)], []
    yield [], [("a", 1, 4096), ("a", 1, 4096)]
    yield [], [("a", 1, 4096), ("a", 2, 4096), ("b", 1, 4096)]
    yield [("a", 1)], [("a", 1, 4096)]
    yield [("a", 1)], [("a", 2, 4096)]
    yield [("a", 1), ("a", 2)], []
    yield [("unknown", 1)], []
    yield [("b", 1)], []
    yield [("a", 1)], [("b", 1, 1)]
    yield [], []


SCRAM_DESCRIBED: tuple[list[str] | None, ...] = (
    None,
    [],
    ["a"],
    ["unknown"],
    ["a", "a"],
    ["a", "unknown"],
    [""],
    ["unknown", "unknown"],
)

U, C, IP = "user", "client-id", "ip"
RATE = "producer_byte_rate"
QUOTA_CHANGES: tuple[tuple[list[tuple[str, str | None]], list[tuple[str, float, bool]]], ...] = (
    ([(U, "a")], [(RATE, 1000.0, False)]),
    ([(U, None)], [(RATE, 2000.0, False)]),
    ([(C, "c")], [("consumer_byte_rate", 3000.0, False)]),
    ([(C, None)], [("consumer_byte_rate", 4000.0, False)]),
    ([(U, "a"), (C, "c")], [(RATE, 5000.0, False), ("request_percentage", 12.5, False)]),
    ([(U, "a"), (C, None)], [("controller_mutation_rate", 0.5, False)]),
    ([(U, None), (C, None)], [("request_percentage", 200.0, False)]),
    ([(IP, "10.0.0.1")], [("connection_creation_rate", 5.0, False)]),
    ([(IP, None)], [("connection_creation_rate", 6.0, False)]),
    ([(IP, "10.0.0.0/8")], [("connection_creation_rate", 5.0, False)]),
    ([(IP, "not a host")], [("connection_creation_rate", 5.0, False)]),
    ([(IP, "10.0.0.2")], [(RATE, 5.0, False)]),
    ([(U, "a")], [("connection_creation_rate", 5.0, False)]),
    ([(U, "a"), (IP, "10.0.0.1")], [(RATE, 5.0, False)]),
    ([(U, "a"), (U, "b")], [(RATE, 5.0, False)]),
    ([(U, "")], [(RATE, 5.0, False)]),
    ([(C, "")], [(RATE, 5.0, False)]),
    ([("group", "a")], [(RATE, 5.0, False)]),
    ([("", "a")], [(RATE, 5.0, False)]),
    ([], [(RATE, 5.0, False)]),
    ([(U, "b")], []),
    ([(U, "b")], [("unknown", 5.0, False)]),
    ([(U, "b")], [("unknown", 0.0, True)]),
    ([(U, "b")], [(RATE, 0.0, True)]),
    ([(U, "b")], [(RATE, 0.0, False)]),
    ([(U, "b")], [(RATE, -1.0, False)]),
    ([(U, "b")], [(RATE, 1.5, False)]),
    ([(U, "b")], [(RATE, 1.0e19, False)]),
    ([(U, "b")], [("request_percentage", 0.0, False)]),
    ([(U, "b")], [("controller_mutation_rate", 0.0, False)]),
    ([(IP, "10.0.0.3")], [("connection_creation_rate", 1.5, False)]),
    ([(U, "d")], [(RATE, 1.0, False), (RATE, 2.0, False)]),
    ([(U, "e")], [(RATE, 1.0, False), (RATE, 0.0, True)]),
    ([(U, "f")], [(RATE, 1.0, False), ("unknown", 2.0, False)]),
)


def _single() -> Iterator[list[tuple[str, int, str | None]]]:
    for kind, name in ((U, "a"), (C, "c"), (IP, "10.0.0.1"), (U, "zz")):
        yield [(kind, 0, name)]
    for kind in (U, C, IP):
        for match in (1, 2):
            yield [(kind, match, None)]


def quota_filters() -> Iterator[tuple[list[tuple[str, int, str | None]], bool]]:
    """Yield components (entity type, match type, match) and strict."""
    rows: list[list[tuple[str, int, str | None]]] = [
        [],
        *_single(),
        [(U, 0, "a"), (C, 0, "c")],
        [(U, 0, "a"), (C, 1, None)],
        [(U, 0, "a"), (C, 2, None)],
        [(U, 1, None), (C, 1, None)],
        [(U, 2, None), (C, 2, None)],
        [(U, 2, None), (IP, 2, None)],
        [(U, 0, "a"), (U, 0, "b")],
        [(U, 0, "a"), (U, 0, "a")],
        [("group", 0, "a")],
        [("", 0, "a")],
        [(U, 0, None)],
        [(U, 0, "")],
        [(U, 1, "a")],
        [(U, 2, "a")],
        [(U, 3, None)],
        [(U, -1, None)],
    ]
    for components in rows:
        for strict in (False, True):
            yield components, strict
