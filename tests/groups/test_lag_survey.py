"""Check the lag of all groups, exact and bounded, and its samples over time."""

import asyncio
import struct
from functools import partial
from typing import Any

import pytest

from korvet.broker.background.runner import Leases
from korvet.broker.background.tasks import BackgroundTasks
from korvet.console.server import LAG_LEASE
from korvet.context import Services
from korvet.groups import lag_survey
from korvet.groups.lag import list_lags
from korvet.groups.lag_survey import GroupLag, LagRow, LagSurvey, Survey
from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.groups.test_classic_groups import commit, stable
from tests.support.connected_broker import Broker, broker
from tests.support.raw_client import batch, to_produce

__all__ = ["broker"]


LAYOUTS = [
    ("record", "dense"),
    ("batch", "dense"),
    ("record", "time"),
    ("batch", "time"),
    ("batch", "bytes"),
]


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_survey, "THROTTLE_FACTOR", 0)


async def produce(broker: Broker, topic: str, count: int, partition: int = 0) -> list[int]:
    """Produce `count` records, one batch each; return their offsets."""
    offsets = []
    for number in range(count):
        data = batch([b"v%d" % number])
        answer = await broker.ask(to_produce(topic, data, partition=partition), 9)
        offsets.append(answer.responses[0].partition_responses[0].base_offset)
    return offsets


async def delete_below(broker: Broker, offset: int) -> None:
    """Delete the records of partition 0 of topic t below the offset."""
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[part])]
    await broker.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000))


def survey_of(services: Services) -> LagSurvey:
    return LagSurvey(services.node)


async def surveyed(services: Services, *, groups: int = 100) -> Survey:
    found = await survey_of(services).run(groups)
    assert found is not None
    return found


@pytest.mark.parametrize(("form", "mode"), LAYOUTS[:4])
async def test_a_count_is_used_again_until_the_log_changes(
    broker: Broker, form: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", 1, storage_format=form, offset_mode=mode)
    offsets = await produce(broker, "t", 9)
    for name, at in (("a", 3), ("b", 3), ("c", 6)):
        await commit(broker, group_id=name, offset=offsets[at])
    services, survey, calls = broker.services, survey_of(broker.services), list[str]()
    run_many = services.store.run_many

    async def watched(asked: Any) -> Any:
        asked = list(asked)
        calls.extend(each.script.name for each in asked)
        return await run_many(asked)

    monkeypatch.setattr(services.store, "run_many", watched)

    async def lags() -> tuple[list[int], int]:
        calls.clear()
        found = await survey.run(10)
        assert found is not None
        by_name = {group.group: group.lag for group in found.groups}
        return [by_name[name] for name in "abc"], calls.count("log.lag")

    first, asked = await lags()
    assert first == [6, 6, 3] and asked <= 2, "two groups have one offset"
    assert await lags() == ([6, 6, 3], 0)
    await produce(broker, "t", 2)
    assert (await lags())[0] == [8, 8, 5]
    await delete_below(broker, offsets[5])
    assert (await lags())[0] == [6, 6, 5]
    await commit(broker, group_id="a", offset=offsets[8])
    assert (await lags())[0] == [3, 6, 5]


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
async def test_lag_is_in_records_and_as_the_commands_show_it(
    broker: Broker, form: str, mode: str
) -> None:
    await broker.create("t", 1, storage_format=form, offset_mode=mode)
    offsets = await produce(broker, "t", 10)
    services = broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    end = await services.store.run(services.keys.partition("t", 0, topic.id).list_offsets())
    for group, offset in (("all", offsets[0]), ("some", offsets[4]), ("none", end.next)):
        await commit(broker, group_id=group, offset=offset)
    found = await surveyed(services)
    by_group = {each.group: each for each in found.groups}
    if mode != "bytes":  # the lag counts a batch as its bytes
        assert {name: each.lag for name, each in by_group.items()} == {
            "all": 10,
            "some": 6,
            "none": 0,
        }
    for name, each in by_group.items():
        (shown,) = await list_lags(services.node, name)
        (row,) = each.rows
        assert (row.committed, row.end, row.lag) == (shown.commit.offset, shown.end, shown.lag)
    assert by_group["none"].lag == 0 < by_group["some"].lag < by_group["all"].lag


async def test_records_that_were_deleted_are_no_lag(broker: Broker) -> None:
    await broker.create("t", 1, storage_format="record", offset_mode="dense")
    await produce(broker, "t", 10)
    await commit(broker, offset=0)
    await delete_below(broker, 7)
    assert (await surveyed(broker.services)).groups[0].lag == 3


async def test_the_groups_with_the_most_lag_are_kept_whatever_their_names(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_survey, "GROUPS_PER_PIPELINE", 3)
    await broker.create("t", 1, offset_mode="dense")
    await produce(broker, "t", 8)
    for number in range(8):
        await commit(broker, group_id=f"g{number}", offset=number)
    await commit(broker, group_id="f", offset=2)
    found = await surveyed(broker.services, groups=3)
    assert [(each.group, each.lag) for each in found.groups] == [("g0", 8), ("g1", 7), ("f", 6)]
    assert (found.total_groups, found.hidden_groups) == (9, 6)


async def test_of_too_many_rows_those_with_the_most_lag_are_kept(broker: Broker) -> None:
    await broker.create("t", 3, offset_mode="dense")
    for partition, count in enumerate((1, 5, 3)):
        await produce(broker, "t", count, partition)
        await commit(broker, group_id="g", partition=partition, offset=0)
    await commit(broker, group_id="h", partition=1, offset=1)
    found = await surveyed(broker.services)
    rows, hidden = found.rows(2)
    assert [(group, row.partition, row.lag) for group, row in rows] == [("g", 1, 5), ("h", 1, 4)]
    assert hidden == 2
    assert [each.lag for each in found.groups] == [9, 4]


async def test_every_group_is_read_however_many_there_are(broker: Broker) -> None:
    for number in range(1100):
        await broker.services.store.run(broker.services.groups.registry.add(f"g{number}"))
        key = broker.services.keys.group(f"g{number}").group
        await broker.services.store.command("HSET", key, "size", "0")
    found = await surveyed(broker.services, groups=1)
    assert (found.total_groups, found.hidden_groups) == (1100, 1099)
    assert found.groups[0].group == "g0"


async def test_a_process_that_is_not_scraped_leaves_the_groups_to_one_that_is(
    broker: Broker,
) -> None:
    await broker.create("t", 1)
    await commit(broker, group_id="g")
    services = broker.services
    unseen = BackgroundTasks(services).group_gauges
    await unseen.update()
    assert unseen.members() == {}
    services.metrics.scraped()
    seen, second = (BackgroundTasks(services).group_gauges for _ in range(2))
    await seen.update()
    await second.update()
    assert (seen.members(), second.members()) == ({("g",): 0}, {})


async def test_one_survey_serves_all_readers_for_an_interval(broker: Broker) -> None:
    await broker.create("t", 1)
    await commit(broker, group_id="a")
    survey = survey_of(broker.services)
    first, second = await asyncio.gather(*(survey.newest(lag_survey.INTERVAL_S) for _ in range(2)))
    await commit(broker, group_id="b")
    assert first is second is await survey.newest(lag_survey.INTERVAL_S)
    newest = await survey.newest(0)
    assert newest is not None and newest.total_groups == 2


async def test_an_update_ends_when_another_broker_has_the_lease(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_survey, "GROUPS_PER_PIPELINE", 1)
    await broker.create("t", 1)
    for name in ("a", "b", "c"):
        await commit(broker, group_id=name)
    services = broker.services
    services.metrics.scraped()
    tasks = BackgroundTasks(services)
    answers = iter([True, True, False])

    async def hold(*_: Any) -> bool:
        return next(answers)

    monkeypatch.setattr(tasks.leases, "hold", hold)
    gauges = tasks.group_gauges
    await gauges.update()
    assert gauges.members() == {}
    assert services.metrics.groups.family().samples == []


@pytest.mark.parametrize("kind", ["classic", "consumer"])
async def test_an_assigned_partition_without_a_commit_counts_from_the_log_start(
    broker: Broker, kind: str
) -> None:
    """The console, top, metrics and the CLI had counted such partitions differently."""
    await broker.create("t", 2, offset_mode="dense")
    for partition, count in enumerate((3, 4)):
        await produce(broker, "t", count, partition)
    services = broker.services
    if kind == "classic":
        member, generation = await stable(broker)
        given = struct.pack(">hih1siii", 0, 1, 1, b"t", 2, 0, 1) + b"\xff\xff\xff\xff"
        key = services.keys.group("g").assignments
        await services.store.command("HSET", key, member, given)
        assert generation == 1
    else:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip
        assert (await broker.ask(request)).error_code == 0
    rows = await list_lags(services.node, "g")
    assert [(row.partition, row.commit.offset, row.lag) for row in rows] == [(0, -1, 3), (1, -1, 4)]
    assert all(row.age_ms >= 0 and 0 <= row.lag_ms <= row.age_ms for row in rows)
    found = await surveyed(services)
    assert [(row.partition, row.committed, row.lag) for row in found.groups[0].rows] == [
        (0, -1, 3),
        (1, -1, 4),
    ]
    assert found.groups[0].lag == 7


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
