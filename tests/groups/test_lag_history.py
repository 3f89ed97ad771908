"""Check the lag of groups over time: recorded once a minute, read by any broker."""

from functools import partial

import pytest

from korvet.broker.background.runner import Leases
from korvet.broker.background.tasks import BackgroundTasks
from korvet.console.server import LAG_LEASE
from korvet.context import Services
from korvet.groups import lag_survey
from korvet.groups.lag_survey import GroupLag, LagRow, Survey
from tests.groups.test_classic_groups import commit
from tests.groups.test_lag_survey import produce, survey_of
from tests.support.connected_broker import Broker, broker

__all__ = ["broker"]


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_survey, "THROTTLE_FACTOR", 0)


def group(name: str, *lags: int) -> GroupLag:
    rows = [LagRow("t", number, 0, lag, lag) for number, lag in enumerate(lags)]
    return GroupLag(name, 0, rows, sum(lags))


async def minutes(broker: Broker) -> list[bytes]:
    services = broker.services
    found: list[bytes] = await services.store.command("HKEYS", services.keys.lag_history(0))
    return found


async def test_a_sample_has_the_lag_by_partition_and_is_recorded_once_a_minute(
    broker: Broker,
) -> None:
    store, keys = broker.services.store, broker.services.keys
    assert await lag_survey.is_due(store, keys)
    await lag_survey.record_sample(store, keys, Survey([group("a", 5, 0, 7), group("é:{%", 1)], 2))
    assert not await lag_survey.is_due(store, keys)
    await lag_survey.record_sample(store, keys, Survey([group("a", 1, 1, 1)], 1))
    (sample,) = await lag_survey.read_samples(store, keys, "a")
    assert sample.lags == {("t", 0): 5, ("t", 2): 7} and sample.cut == 0
    (other,) = await lag_survey.read_samples(store, keys, "é:{%")
    assert other.lags == {("t", 0): 1} and other.at_ms == sample.at_ms
    (caught_up,) = await lag_survey.read_samples(store, keys, "without-lag")
    assert caught_up.lags == {}, "a missing row is not a lag of 0"


async def test_partitions_above_the_bound_are_left_out_and_the_sample_says_so(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_survey, "MAX_ROWS", 3)
    store, keys = broker.services.store, broker.services.keys
    await lag_survey.record_sample(store, keys, Survey([group("a", 9, 2, 8), group("b", 4, 0)], 2))
    (sample,) = await lag_survey.read_samples(store, keys, "a")
    assert sample.lags == {("t", 0): 9, ("t", 2): 8} and sample.cut == 4


async def test_a_thousand_groups_take_a_few_kilobytes_a_minute(broker: Broker) -> None:
    store, keys = broker.services.store, broker.services.keys
    names = [f"service-{at}.consumer" for at in range(1000)]
    groups = [group(name, *(at * 37 % 5000 for at in range(5))) for name in names]
    await lag_survey.record_sample(store, keys, Survey(groups, 1000))
    sizes = [
        len((await store.command("HVALS", keys.lag_history(shard)))[0])
        for shard in range(lag_survey.SHARDS)
    ]
    assert sum(sizes) < 30_000


async def record(services: Services, leases: Leases | None = None) -> None:
    """Record as a console does."""
    leases = leases or Leases(services.store, services.keys, 2)
    hold = partial(leases.hold, LAG_LEASE, 60)
    await lag_survey.record_if_due(survey_of(services), hold)


async def test_the_first_of_scrapes_and_consoles_records(broker: Broker) -> None:
    await broker.create("t", 1, offset_mode="dense")
    await produce(broker, "t", 6)
    await commit(broker, group_id="g", offset=2)
    services = broker.services
    gauges = BackgroundTasks(services).group_gauges
    await gauges.update()
    assert await minutes(broker) == [], "no scrape, no sample"
    services.metrics.scraped()
    await gauges.update()
    (sample,) = await lag_survey.read_samples(services.store, services.keys, "g")
    assert sample.lags == {("t", 0): 4}
    before = await minutes(broker)
    await record(services)
    assert await minutes(broker) == before, "the minute has a sample"


async def test_a_console_records_without_a_scrape(broker: Broker) -> None:
    await broker.create("t", 1, offset_mode="dense")
    await produce(broker, "t", 3)
    await commit(broker, group_id="g", offset=1)
    services = broker.services
    first = Leases(services.store, services.keys, 1)
    assert await first.hold(LAG_LEASE, 60)
    await record(services)
    assert await minutes(broker) == [], "the console of another broker records it"
    await record(services, first)
    (sample,) = await lag_survey.read_samples(services.store, services.keys, "g")
    assert sample.lags == {("t", 0): 2}
