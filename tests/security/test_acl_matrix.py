"""Check that Korvet's responses are those recorded with Kafka's authorizer."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from korvet.testing import Broker
from korvet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from korvet.wire.messages.api_versions import ApiVersionsRequest
from tests.security.acl_probes import PROBES
from tests.security.acl_scene import Scene
from tests.security.acl_tables import tables
from tests.security.record_acls import FOLDER, MATRIX, TABLES
from tests.support.sasl_client import SaslClient

RECORDED: dict[str, list[tuple[Any, list[str]]]] = json.loads((FOLDER / MATRIX).read_text())
NETWORK, ADDRESS = "@127.0.0.0/8", "@127.0.0.1"
"""Korvet matches networks, which Kafka stores but never matches: as if it were the address."""
CREATED = (
    r'"error_code": 0, "name": "made", "topic_id": "id", "partitions": [{"error_code": 0,'
    r' "partition_index": 0, "replica_nodes": "some", "isr_nodes": "some"}]'
)
DIFFERENCES: dict[str, list[tuple[str, str]]] = {
    # A topic that Metadata creates has a leader at once.
    "Metadata 12 creates": [(r'"error_code": 3, "name": "made"', CREATED)],
    "Metadata 12 creates by the cluster": [(r'"error_code": 3, "name": "made"', CREATED)],
    # A partition has no followers: a Fetch of one is served as a consumer's.
    "Fetch 12 as a follower": [(r'"error_code": 6', '"error_code": 0')],
    # The state of share groups is in Redis, not with coordinators: the key type is invalid.
    "FindCoordinator 6 type 2": [(r'"error_code": (31|15|0)\}', '"error_code": 42}')],
    # The id of a topic is not given to a client that may not use the topic.
    "AlterShareGroupOffsets 0 e1 t1 t2": [
        (r', "topic_id": "id"(, "partitions": \[\{"partition_index": 0, "error_code": 29\})', r"\1")
    ],
}
"""Per probe, the parts of Kafka's outline (patterns) that differ in Korvet's, with the reason."""
LEFT_OUT = {
    ("Produce 12 t2", "+topic=t2:all"): "Produce creates a missing topic, as Metadata does",
}
"""Cases with another answer, and why."""
CLIENT_ERRORS = (42, -1, "closed")
"""Kafka's responses to values out of range; Korvet responds INVALID_REQUEST to all of them."""


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    users = {"admin": "admin-secret", "alice": "alice-secret"}
    with Broker(settings=settings, users=users, node_id=1) as broker:
        clients = [SaslClient(broker.bootstrap_servers, *user) for user in users.items()]
        made = Scene(*clients)
        made.prepare()
        _delete_credentials(*clients)
        yield made
        for client in clients:
            client.close()


def _delete_credentials(admin: SaslClient, alice: SaslClient) -> None:
    """Delete the credentials of alice, who has none at the recorded broker."""
    alice.ask(ApiVersionsRequest(), 3)
    rows = [ScramCredentialDeletion(name="alice", mechanism=each) for each in (1, 2)]
    for row in rows:
        answer = admin.ask(AlterUserScramCredentialsRequest(deletions=[row], upsertions=[]), 0)
        assert answer.results[0].error_code == 0, answer


def cases(name: str) -> dict[str, Any]:
    """Return the expected outline per set of rules."""
    found = {rules: outline for outline, sets in RECORDED[name] for rules in sets}
    for rules in found:
        if NETWORK in rules:
            found[rules] = found[rules.replace(NETWORK, ADDRESS)]
    return {
        rules: expected(name, outline)
        for rules, outline in found.items()
        if (name, rules) not in LEFT_OUT
    }


def expected(name: str, outline: Any) -> Any:
    text = json.dumps(outline)
    for pattern, instead in DIFFERENCES.get(name, []):
        text = re.sub(pattern, instead, text)
    return json.loads(text)


def boundary(name: str) -> list[str]:
    """Return the first and the last set of rules of each outline."""
    return [rules for _, sets in RECORDED[name] for rules in dict.fromkeys((sets[0], sets[-1]))]


def compare(scene: Scene, name: str, only: list[str] | None = None) -> None:
    wanted = cases(name)
    chosen = [rules for rules in only or wanted if rules in wanted]
    got = {rules: scene.run(PROBES[name], tuple(rules.split())) for rules in chosen}
    differ = {rules: (wanted[rules], got[rules]) for rules in chosen if got[rules] != wanted[rules]}
    assert not differ


def test_every_probe_is_recorded() -> None:
    assert list(PROBES) == list(RECORDED)


@pytest.mark.parametrize("name", PROBES)
def test_each_outcome_is_that_of_kafka(scene: Scene, name: str) -> None:
    compare(scene, name, boundary(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBES)
def test_each_set_of_rules_has_the_outcome_of_kafka(scene: Scene, name: str) -> None:
    compare(scene, name)


def test_tables_of_rules_are_those_of_kafka(scene: Scene) -> None:
    found = json.loads(msgspec.json.encode(tables(scene)))
    recorded = json.loads((FOLDER / TABLES).read_text())
    assert list(found) == list(recorded)
    for name in recorded:
        differ = [
            (want, got)
            for want, got in zip(recorded[name], found[name], strict=True)
            if want != without_admin(got) and not is_known(want, got)
        ]
        assert not differ, name


def without_admin(got: list[Any]) -> list[Any]:
    """Return the response without the requesting user, who has no SCRAM credential in Kafka's."""
    rows = got[-1]
    return [*got[:-1], [row for row in rows if row[:1] != ["admin"]]] if is_list(rows) else got


def is_list(rows: Any) -> bool:
    return isinstance(rows, list) and all(isinstance(row, list) for row in rows)


def is_known(want: list[Any], got: list[Any]) -> bool:
    """Return whether Korvet responds INVALID_REQUEST in a case where Kafka is known not to."""
    change = want[0]
    if got[1] == [42]:
        return change[0] == [["user", "a"], ["user", "b"]]  # Kafka ignores the first user
    if got[1] != 42:
        return False
    if want[1] in CLIENT_ERRORS or want[1:] == [0, []]:
        return True
    # A principal without a name, or an empty host, would never match.
    return change in ({"principal": ":alice"}, {"principal": "User:"}, {"host": ""})


def test_an_address_is_matched_by_a_rule_for_its_network(scene: Scene) -> None:
    probe = PROBES["Produce 12 t1"]
    answers = [
        scene.run(probe, (f"+topic=t1:write@{host}",)) for host in ("127.0.0.0/8", "10.0.0.0/8")
    ]
    codes = [answer["responses"][0]["partition_responses"][0]["error_code"] for answer in answers]
    assert codes == [0, 29]
