"""Check that Korvet has all of Kafka's configs of share groups, with its defaults and types."""

from korvet.config.broker_settings import BROKER
from korvet.config.group_settings import GROUP
from tests.conformance.share_configs import VERSION, asking, listed, read
from tests.support.connected_broker import Broker, broker

__all__ = ["broker"]

OWN = {"share.order", "share.retry.backoff.ms", "share.retry.backoff.max.ms"}
"""Configs of groups that Kafka does not have."""


async def test_configs_of_share_groups_are_those_of_kafka(broker: Broker) -> None:
    found = listed(await broker.ask(asking("7"), VERSION))
    assert found["group"].keys() - read()["group"].keys() == OWN
    for name in OWN:
        del found["group"][name]
    assert found == read()


def test_each_config_of_share_groups_has_an_effect() -> None:
    """Another test checks in the code that the stated effects are true."""
    recorded = read()
    rows = [BROKER[name] for name in recorded["broker"]]
    rows += [GROUP[name] for name in recorded["group"]]
    assert [row.name for row in rows if not row.effect] == []
    assert len(rows) > 25
