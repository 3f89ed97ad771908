"""Compare Korvet's answers to clients under ACL rules with those recorded of Apache Kafka.

kafka_acl_matrix.json has for each probe, a request of an API, its distinct answers, each with the
sets of rules that give it. record_acls.py records it.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from korvet.testing import Broker
from korvet.wire.messages.delete_topics import DeleteTopicsRequest
from tests.security.acl_probes import PROBES
from tests.security.acl_scene import Scene
from tests.security.sasl_client import SaslClient

MATRIX: dict[str, list[tuple[Any, list[str]]]] = json.loads(
    (Path(__file__).parent / "kafka_acl_matrix.json").read_text()
)
DIFFERENT = {
    "Fetch 12 as a follower": "brokers have no followers: the answer to an allowed one differs",
    "Metadata 12 creates": "a topic that is created automatically is in the response",
    "Metadata 12 creates by the cluster": "as above",
    "FindCoordinator 6 type 2": "share groups are not served",
    "DescribeUserScramCredentials 0": "the user has credentials; a refusal has no row without name",
    "AlterUserScramCredentials 0": "the user has credentials, which the probe deletes",
}
"""Probes some of whose answers differ from Kafka's, and why: they run, and are not compared."""
NETWORK = "/8"
"""In a rule: a host that is a network, which matches no client in Kafka and its addresses here."""
CREATED = ("Produce 12 t2", "+topic=t2:all")
"""Produce creates a missing topic here; Kafka creates it for Metadata only."""


def cases(most: int) -> list[Any]:
    """Return each probe with at most `most` sets of rules for each of its answers."""
    found = []
    for name, outcomes in MATRIX.items():
        chosen = [
            (rules, answer)
            for answer, sets in outcomes
            for rules in [each for each in sets if NETWORK not in each][:most]
        ]
        found.append(pytest.param(name, chosen, id=name))
    return found


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": "korvet",
        "super.users": "User:admin",
    }
    users = {"admin": "admin-secret", "alice": "alice-secret"}
    with (
        Broker(users=users, listeners=("SASL_PLAINTEXT",), node_id=1, settings=settings) as broker,
        closing(SaslClient(broker.address("SASL_PLAINTEXT"), "admin", "admin-secret")) as admin,
        closing(SaslClient(broker.address("SASL_PLAINTEXT"), "alice", "alice-secret")) as alice,
    ):
        found = Scene(admin, alice)
        found.prepare()
        yield found


def compare(scene: Scene, name: str, chosen: list[tuple[str, Any]]) -> None:
    differences = []
    for rules, expected in chosen:
        answer = json.loads(msgspec.json.encode(scene.run(PROBES[name], tuple(rules.split()))))
        if name.startswith("Produce") and "t2" in name:
            scene.admin.ask(DeleteTopicsRequest(topic_names=["t2"], timeout_ms=1000), 5)
        if answer != expected and (name, rules) != CREATED and name not in DIFFERENT:
            differences.append((rules, expected, answer))
    assert not differences


@pytest.mark.parametrize(("name", "chosen"), cases(1))
def test_a_client_is_answered_as_by_kafka_under_the_same_rules(
    scene: Scene, name: str, chosen: list[tuple[str, Any]]
) -> None:
    compare(scene, name, chosen)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chosen"), cases(10_000))
def test_a_client_is_answered_as_by_kafka_under_all_recorded_rules(
    scene: Scene, name: str, chosen: list[tuple[str, Any]]
) -> None:
    compare(scene, name, chosen)


def test_an_address_is_matched_by_a_rule_for_its_network(scene: Scene) -> None:
    probe = PROBES["Produce 12 t1"]
    answers = [
        scene.run(probe, (f"+topic=t1:write@{host}",)) for host in ("127.0.0.0/8", "10.0.0.0/8")
    ]
    codes = [answer["responses"][0]["partition_responses"][0]["error_code"] for answer in answers]
    assert codes == [0, 29]
