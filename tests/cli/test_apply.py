"""Check `korvet apply`: changes at brokers and on their Redis, --prune, refusals with a line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from korvet import Korvet, Record
from korvet.scripts.keys import Keys
from tests.cli.conftest import lines_of
from tests.support.running_console import RunningConsole, where_of

FILE = """\
topics:
  orders:
    partitions: 3
    configs: {retention.ms: 7d, cleanup.policy: delete}
  payments:
acls:
  - {principal: [User:alice, User:ann], operation: read, topic: orders, prefixed: true}
quotas:
  - {user: bob, client-id: app, producer_byte_rate: 1000}
  - {default: ip, connection_creation_rate: 5}
users: [alice]
"""
Apply = Callable[..., tuple[int, list[str], str]]


@pytest.fixture(scope="module")
def broker(guarded_broker: RunningConsole) -> RunningConsole:
    return guarded_broker


@pytest.fixture(params=["brokers", "redis"])
def apply(
    broker: RunningConsole,
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Apply:
    """Apply a text as a file; return exit code, rows of changes and stderr."""
    korvet = lines_of(capfd, where_of(broker, request.param))
    path = tmp_path / "wanted.yaml"

    def run(text: str, *options: str) -> tuple[int, list[str], str]:
        path.write_text(text)
        code, lines, said = korvet("apply", str(path), "--no-header", *options)
        return code, [line.replace("\t", " ") for line in lines], said

    run("topics: {}\nacls: []\nquotas: []\nusers: []\n", "--prune")
    return run


def topics_of(broker: RunningConsole) -> set[str]:
    """Return the topics that Redis has; the library's list may be a second old."""
    with broker.server.client() as client:
        names = client.hkeys(Keys(broker.namespace).topics())
    return {name.decode() for name in names if name[:1] != b":"}


def test_a_file_is_applied_once_and_its_changes_follow(
    apply: Apply, broker: RunningConsole
) -> None:
    code, planned, _ = apply(FILE, "--dry-run")
    assert (code, topics_of(broker)) == (1, set())
    assert planned == [
        "add topic orders partitions - 3",
        "add topic orders retention.ms - 604800000",
        "add topic orders cleanup.policy - delete",
        "add topic payments partitions - -",
        "add acl User:alice allow read topic orders prefixed - -",
        "add acl User:ann allow read topic orders prefixed - -",
        "add quota client-id=app,user=bob producer_byte_rate - 1000",
        "add quota ip=(default) connection_creation_rate - 5",
        "missing user alice korvet users add alice - -",
    ]
    assert apply(FILE)[:2] == (1, planned), "a user without a password is for its owner to add"
    assert apply(FILE)[:2] == (1, planned[-1:])
    broker.add_user("alice", "a")
    assert apply(FILE) == (0, [], "note: nothing to change\n")
    with Korvet.connect(broker.server.url, namespace=broker.namespace) as log:
        log.append("orders", 0, [Record(b"x")])
    changed = (
        FILE.replace("partitions: 3", "partitions: 5").replace("7d", "1d").replace("00}", "1}")
    )
    assert apply(changed)[:2] == (
        0,
        [
            "change topic orders partitions 3 5",
            "change topic orders retention.ms 604800000 86400000",
            "change quota client-id=app,user=bob producer_byte_rate 1000 101",
        ],
    )
    assert apply(changed, "--dry-run")[0] == 0
    with Korvet.connect(broker.server.url, namespace=broker.namespace) as log:
        assert [part.records for part in log.offsets("orders")] == [1, 0, 0, 0, 0]


def test_only_prune_deletes_and_only_in_sections_of_the_file(
    apply: Apply, broker: RunningConsole
) -> None:
    broker.add_user("alice", "a")
    apply(FILE)
    small = json.dumps({"topics": {"orders": {}}, "users": []}, indent="\t")
    assert apply(small)[:2] == (0, [])
    pruned = [
        "change topic orders cleanup.policy delete -",
        "change topic orders retention.ms 604800000 -",
        "delete topic payments - - -",
        "delete user alice - - -",
    ]
    assert apply(small, "--prune", "--dry-run")[:2] == (1, pruned)
    assert apply(small, "--prune")[:2] == (0, pruned)
    assert topics_of(broker) == {"orders"}
    assert apply("acls: []\nquotas: []", "--prune")[:2] == (
        0,
        [
            "delete acl User:alice allow read topic orders prefixed - -",
            "delete acl User:ann allow read topic orders prefixed - -",
            "delete quota client-id=app,user=bob producer_byte_rate 1000 -",
            "delete quota ip=(default) connection_creation_rate 5 -",
        ],
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("topics:\n  a:\n    partition: 3\n", "line 3: partition is unknown here: partitions,"),
        ("topic: {}\n", "line 1: topic is unknown here: topics, acls, quotas, users."),
        ("topics:\n  a: {}\n  a: {}\n", "line 3: a is given twice."),
        ("topics:\n  a: {partitions: 0}\n", "line 2: '0' is no number from 1 on."),
        ("topics: [a]\n", "line 1: here are NAME: VALUE"),
        ("users: {a: b}\n", "line 1: here is a list."),
        ("users: [[a]]\n", "line 1: here is one text or number."),
        ("topics:\n  a:\n    configs: {retention.ms: }\n", "line 3: here is one text or number."),
        ("acls:\n- {principal: a, operation: read, topic: a}\n", "line 2: The principal must be"),
        ("acls:\n- {principal: User:a, operation: fly, topic: a}\n", "unknown operation 'fly'"),
        ("acls:\n- {principal: User:a, deny: maybe}\n", "'maybe' is neither true nor false."),
        ("quotas:\n- {producer_byte_rate: 1}\n", "line 2: a quota is of one of user,"),
        ("quotas:\n- {user: a}\n- {user: a}\n", "line 3: the quotas of this entity are given"),
        ("quotas:\n- {user: a, producer_byte_rate: x}\n", "producer_byte_rate must be a number"),
        ('{\n\t"topics": {},\n\t"user": []\n}', "line 3: user is unknown here"),
        ('{"topics": }', "is no JSON: "),
        ("topics: {a", "is no YAML: "),
        ("", "is empty: it has topics, acls, quotas, users."),
        ("topics: {good: {}, a: {configs: {retention.ms: x}}}", "retention.ms must be"),
        ("topics: {good: {}, a: {configs: {offset.mode: x}}}", "offset.mode must be one of"),
        ("topics: {good: {}}\nquotas: [{user: a, nonsense: 1}]", "nonsense is unknown here"),
    ],
)
def test_a_file_that_is_refused_changes_nothing(
    apply: Apply, broker: RunningConsole, text: str, sentence: str
) -> None:
    code, lines, said = apply(text)
    assert (code, lines, topics_of(broker)) == (2, [], set()) and sentence in said


def test_partitions_are_checked_before_the_first_change(
    apply: Apply, broker: RunningConsole
) -> None:
    apply("topics: {a: {partitions: 3}}")
    code, _, said = apply("topics: {good: {}, a: {partitions: 10001}}")
    assert code == 2 and "10000 partitions" in said and topics_of(broker) == {"a"}
    code, _, said = apply("topics: {b: {}, a: {partitions: 2}}")
    assert code == 2 and "a has 3 partitions, and the file 2" in said
