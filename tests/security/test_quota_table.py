"""Check that quotas are enforced as by the Apache Kafka 4.3 that `quota_table` recorded."""

from collections.abc import Iterator

import msgspec
import pytest

from korvet import testing
from korvet.broker.network.client_socket import ClientSocket
from tests.security.quota_table import RECORDED, Broker, Outcome, cases

KAFKA = msgspec.json.decode(RECORDED.read_bytes(), type=dict[str, list[Outcome]])
DECISIONS: dict[str, dict[int, Outcome]] = {
    # Metadata responds once the topic exists; Kafka creates it afterwards.
    "controller_mutation_rate: topics that Metadata creates": {0: Outcome([0], 0, False, 0)},
    # Kafka does not count the time of requests without a response.
    "request_percentage: Produce, acks 0": {2: Outcome([], 0, True, 0)},
    # A throttled response of Kafka has no records. Its client reads them again, and never gets a
    # batch of more than ten seconds of the rate. Korvet has read them, and sends them.
    "request_percentage: Fetch": {2: Outcome([0], 1, True, 9)},
    # A client that was quiet may use a tenth of a second of a byte rate at once. In Kafka it may
    # use ten seconds, so that records come in bursts.
    "producer_byte_rate: produce": {
        0: Outcome([0], 66, True, 0),
        1: Outcome([0], 131, True, 0),
    },
    "producer_byte_rate: produce, acks 0": {1: Outcome([0], 131, True, 0)},
    "producer_byte_rate: produce, a small batch": {0: Outcome([0], 1, True, 0)},
    "producer_byte_rate: other requests": {0: Outcome([0], 66, True, 0)},
    # Both.
    "consumer_byte_rate: fetch": {
        0: Outcome([0], 65, True, 1),
        1: Outcome([0], 131, True, 1),
    },
    "consumer_byte_rate: fetch, batches within ten seconds of the rate": {
        0: Outcome([0], 10, True, 3),
        1: Outcome([0], 20, True, 3),
    },
    "consumer_byte_rate: other requests": {0: Outcome([0], 65, True, 1)},
}
"""Requests of a case to which Korvet responds otherwise, with its outcomes."""
CASES = cases()
SETTINGS = {"num.partitions": "4"}
"""As of the Kafka that was recorded."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker whose muted connections stay muted, however long the test takes."""
    with pytest.MonkeyPatch.context() as patch, testing.Broker(settings=SETTINGS) as running:
        patch.setattr(ClientSocket, "_is_muted", lambda self: self._muted_until > 0)
        patch.setattr(ClientSocket, "_unmute", lambda _: None)
        yield Broker(running.bootstrap_servers)


@pytest.mark.parametrize("name", CASES)
def test_a_quota_is_enforced_as_by_kafka(broker: Broker, name: str) -> None:
    decided = DECISIONS.get(name, {})
    wanted = [decided.get(at, outcome) for at, outcome in enumerate(KAFKA[name])]
    found = broker.run(CASES[name])
    # The time that passed is less of a debt.
    assert [outcome.wait_s for outcome in found] == [
        pytest.approx(outcome.wait_s, rel=0.1, abs=min(outcome.wait_s, 1)) for outcome in wanted
    ]
    assert [each._replace(wait_s=0) for each in found] == [
        each._replace(wait_s=0) for each in wanted
    ]


def test_every_case_is_recorded() -> None:
    assert KAFKA.keys() == CASES.keys()
    assert DECISIONS.keys() <= CASES.keys()
