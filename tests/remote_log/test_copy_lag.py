"""Check remote.copy.lag.ms and .bytes: age of a copied segment, and distance from the end."""

from typing import Any

import pytest

from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from tests.remote_log.test_tiered_log import Tier, tier

__all__ = ["tier"]
DAY = 86_400_000
FAR = str(100 * 365 * DAY)


async def copied(tier: Tier) -> int:
    """Return the number of copied records."""
    await tier.move()
    return max(0, int((await tier.offset(-6)).offset))


@pytest.mark.parametrize(
    ("configs", "is_copied"),
    [
        ({}, True),
        ({"remote_copy_lag_ms": "1"}, True),  # the records are of 1970
        ({"remote_copy_lag_ms": FAR}, False),
        ({"remote_copy_lag_ms": FAR, "remote_copy_lag_bytes": "0"}, True),
        ({"remote_copy_lag_ms": "-1"}, False),  # local.retention.ms is no limit
        ({"remote_copy_lag_ms": "-1", "retention_ms": str(DAY)}, True),
        ({"remote_copy_lag_ms": "-1", "remote_copy_lag_bytes": "10000000"}, False),
    ],
)
async def test_a_segment_is_copied_if_its_age_or_the_bytes_after_it_permit_it(
    tier: Tier, configs: dict[str, str], is_copied: bool
) -> None:
    await tier.fill(local_retention_bytes="-2", **configs)
    topic = await tier.broker.services.topics.get("t")
    assert topic is not None
    assert (await tier.manager().copy(topic, 0) > 0) is is_copied


async def test_as_many_bytes_as_configured_are_not_copied(tier: Tier) -> None:
    lag = 300_000
    await tier.fill(
        local_retention_bytes="-2", remote_copy_lag_ms="-1", remote_copy_lag_bytes=str(lag)
    )
    first = await copied(tier)
    rest = sum(len(value or b"") for _, value in tier.sent[first:])
    assert lag <= rest < lag + 250_000


async def test_a_lag_of_minus_one_is_as_long_as_the_local_retention(tier: Tier) -> None:
    configs: dict[str, Any] = {"remote_copy_lag_ms": "-1", "remote_copy_lag_bytes": "-1"}
    await tier.fill(local_retention_bytes="300000", **configs)
    first = await copied(tier)
    rest = sum(len(value or b"") for _, value in tier.sent[first:])
    assert first and rest >= 300_000


async def test_the_memory_budget_does_not_wait_for_the_lag(tier: Tier) -> None:
    await tier.fill(local_retention_bytes="-2", remote_copy_lag_ms=FAR)
    topic = await tier.broker.services.topics.get("t")
    assert topic is not None
    assert await tier.manager().copy(topic, 0) == 0
    assert await tier.manager().copy(topic, 0, at_once=(1, 1 << 20)) > 0


@pytest.mark.parametrize("unit", ["ms", "bytes"])
@pytest.mark.parametrize(("local", "total"), [("10", "-1"), ("-2", "10"), ("10", "20")])
def test_a_lag_above_the_local_retention_is_refused(unit: str, local: str, total: str) -> None:
    configs = TopicConfigs(Settings())
    given = {f"retention.{unit}": total, f"local.retention.{unit}": local}
    found = configs.find_conflict("t", {**given, f"remote.copy.lag.{unit}": "11"})
    assert f"Invalid value 11 for configuration remote.copy.lag.{unit}" in str(found)
    for value in ("10", "0", "-1"):
        assert configs.find_conflict("t", {**given, f"remote.copy.lag.{unit}": value}) is None


def test_the_broker_gives_the_default() -> None:
    settings = Settings({"log.remote.copy.lag.ms": "7", "log.remote.copy.lag.bytes": "8"})
    assert TopicConfigs(settings).policy("t", {}).copy_lags == (7, 8)
    assert TopicConfigs(Settings()).policy("t", {}).copy_lags == (0, -1)
