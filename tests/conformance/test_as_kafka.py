"""Check that Korvet responds to every case as Apache Kafka 4.4, except for `decisions`.

Versions that Kafka has dropped must have the error codes of the oldest version it still serves.
"""

from typing import Any

import pytest

from korvet.security.session import Session
from korvet.wire.schema import Message
from tests.conformance import cases  # noqa: F401
from tests.conformance.asking import CASES, outline
from tests.conformance.cases.joining import OTHER
from tests.conformance.decisions import DECISIONS, NOT_AS_KAFKA, decided, without_reasons
from tests.conformance.record import read, topics
from tests.support.connected_broker import Broker, broker

__all__ = ["broker"]

KAFKA = read()


def codes(answer: Any) -> Any:
    """Return only the error codes of an outline, in their places."""
    if isinstance(answer, list):
        return [codes(item) for item in answer]
    if isinstance(answer, dict):
        return {
            name: value if name == "error_code" else codes(value)
            for name, value in answer.items()
            if name == "error_code" or isinstance(value, list | dict)
        }
    return None


async def outlines(broker: Broker, name: str) -> dict[int, Any]:
    """Run the case on Korvet and return the outlines by version."""

    case = CASES[name]
    session = Session("127.0.0.1") if case.one_connection else None

    async def send(request: Message, version: int) -> Any:
        return await broker.ask(request, version, session=session)

    await broker.ask(topics(), 7)
    versions = range(case.versions[0], case.versions[1] + 1)
    return {version: await outline(case, send, version) for version in versions}


@pytest.mark.parametrize("name", sorted(CASES.keys() - NOT_AS_KAFKA))
async def test_a_case_is_answered_as_by_kafka(broker: Broker, name: str) -> None:
    recorded = KAFKA[name]
    for version, answer in (await outlines(broker, name)).items():
        wanted = decided(name, recorded.get(version, recorded[min(recorded)]))
        found = without_reasons(answer, wanted)
        if version in recorded:
            assert found == wanted, f"version {version}"
        else:
            assert codes(found) == codes(wanted), f"version {version}"


async def test_the_last_metadata_of_a_protocol_named_twice_counts(broker: Broker) -> None:
    for answer in (await outlines(broker, "JoinGroup.a_protocol_named_twice")).values():
        assert (answer["error_code"], answer["protocol_name"]) == (0, "range")
        assert [row["metadata"] for row in answer["members"]] == [OTHER.hex()]


async def test_an_instance_without_a_name_is_none(broker: Broker) -> None:
    for answer in (await outlines(broker, "JoinGroup.an_instance_without_a_name")).values():
        assert (answer["error_code"], answer["member_id"]) == (79, "test-made up")


def test_every_case_is_recorded_from_kafka() -> None:
    assert KAFKA.keys() == CASES.keys()
    assert {decision.case for decision in DECISIONS} <= CASES.keys()
