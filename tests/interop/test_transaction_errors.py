"""Check that bad input to transactions gets Apache Kafka 4.4's error code in every version.

transaction_answers.json has the responses of Kafka 4.4.0: api, dialogue, versions, error codes.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.interop.brokers import Broker, Brokers
from tests.interop.conftest import create_topic, topic_name
from tests.interop.transaction_dialogues import Dialogue, Side, every
from tests.support.raw_client import Peer, until

ANSWERS = json.loads(Path(__file__).with_name("transaction_answers.json").read_text())
DIALOGUES = list(every())


@pytest.fixture(scope="module")
def place(brokers: Brokers) -> Iterator[tuple[Broker, str]]:
    """A broker that returns coordinators, and a topic of two partitions."""
    broker = brokers.serving()
    with Peer(broker.address) as peer:
        for kind in (0, 1):
            asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
            assert until(
                lambda asked=asked: (  # type: ignore[misc]
                    peer.ask("FindCoordinator", 4, asked).coordinators[0].error_code == 0
                )
            )
    yield broker, create_topic(broker.address, partitions=2)


@pytest.mark.parametrize(
    ("api", "version", "name", "dialogue"),
    DIALOGUES,
    ids=[f"{api}-{version}-{name.replace(' ', '_')}" for api, version, name, _ in DIALOGUES],
)
def test_bad_input_is_answered_as_by_kafka(
    place: tuple[Broker, str], api: str, version: int, name: str, dialogue: Dialogue
) -> None:
    broker, topic = place
    with Peer(broker.address) as peer:
        found = dialogue(Side(peer, topic, topic_name("tx"), topic_name("group")), version)
    assert found == expected(api, name, version)


def expected(api: str, name: str, version: int) -> list[str]:
    """Return the error codes of Kafka's responses."""
    for versions, answers in ANSWERS[api][name].items():
        first, _, last = versions.partition("-")
        if int(first) <= version <= int(last or first):
            return list(answers)
    raise LookupError(f"{api} {version}: {name}")
