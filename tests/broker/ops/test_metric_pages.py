"""Check /metrics/kafka: the rows of kafka_exporter, in records in every offset mode."""

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from korvet.base.metrics import Metrics
from korvet.broker.background.tasks import BackgroundTasks
from korvet.broker.ops import metric_pages
from korvet.broker.ops.http import OpsPage
from korvet.broker.ops.metric_pages import KafkaPage, NoPage, Span, _in_unit
from korvet.groups import lag_survey
from korvet.groups.lag_survey import LagRow
from korvet.store.errors import RedisUnreachable
from tests.groups.test_classic_groups import commit, stable
from tests.groups.test_lag_survey import produce, survey_of
from tests.support.connected_broker import Broker, broker

__all__ = ["broker"]

BOARD_7589 = {
    "kafka_topic_partition_current_offset": {"topic", "partition"},
    "kafka_topic_partitions": {"topic"},
    "kafka_consumergroup_current_offset": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_lag": {"consumergroup", "topic", "partition"},
}
"""The rows that Grafana board 7589 queries, and their labels."""
EXPORTER = BOARD_7589 | {
    "kafka_brokers": set(),
    "kafka_broker_info": {"id", "address"},
    "kafka_topic_partition_oldest_offset": {"topic", "partition"},
    "kafka_topic_partition_leader": {"topic", "partition"},
    "kafka_topic_partition_leader_is_preferred": {"topic", "partition"},
    "kafka_topic_partition_replicas": {"topic", "partition"},
    "kafka_topic_partition_in_sync_replica": {"topic", "partition"},
    "kafka_topic_partition_under_replicated_partition": {"topic", "partition"},
    "kafka_consumergroup_current_offset_sum": {"consumergroup", "topic"},
    "kafka_consumergroup_lag_sum": {"consumergroup", "topic"},
    "kafka_consumergroup_members": {"consumergroup"},
}
"""All rows of kafka_exporter 1.9 that a cluster without ZooKeeper has."""


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_survey, "THROTTLE_FACTOR", 0)


def page_of(broker: Broker) -> KafkaPage:
    services = broker.services
    return KafkaPage(survey_of(services), services.registration)


async def rows(broker: Broker) -> dict[str, float]:
    """Return every row of a new page, by its name and its labels' values."""
    text = await page_of(broker).text()
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


async def test_the_names_and_labels_are_kafka_exporters(broker: Broker) -> None:
    await broker.create("t", 1)
    await produce(broker, "t", 1)
    await commit(broker)
    text = (await page_of(broker).text()).decode()
    found = {
        family.name: set(family.samples[0].labels)
        for family in text_string_to_metric_families(text)
        if family.name.startswith("kafka_")
    }
    assert found == EXPORTER


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("mode", ["dense", "time"])
async def test_offsets_and_lag_are_in_records(broker: Broker, form: str, mode: str) -> None:
    await broker.create("t", 2, storage_format=form, offset_mode=mode)
    offsets = await produce(broker, "t", 10)
    await produce(broker, "t", 3, partition=1)
    await commit(broker, group_id="g", offset=offsets[4])
    found = await rows(broker)
    assert found["kafka_brokers"] == 1
    assert found["kafka_broker_info 7 me:9092"] == 1
    assert found["kafka_topic_partitions t"] == 2
    assert found["kafka_topic_partition_current_offset t 0"] == 10
    assert found["kafka_topic_partition_current_offset t 1"] == 3
    assert found["kafka_topic_partition_oldest_offset t 0"] == 0
    assert found["kafka_topic_partition_leader t 1"] == 7
    assert found["kafka_topic_partition_replicas t 0"] == 1
    assert found["kafka_topic_partition_in_sync_replica t 0"] == 1
    assert found["kafka_topic_partition_leader_is_preferred t 0"] == 1
    assert found["kafka_topic_partition_under_replicated_partition t 0"] == 0
    assert found["kafka_consumergroup_current_offset g t 0"] == 4
    assert found["kafka_consumergroup_lag g t 0"] == 6
    assert found["kafka_consumergroup_lag_sum g t"] == 6
    assert found["kafka_consumergroup_current_offset_sum g t"] == 4
    assert found["kafka_consumergroup_members g"] == 0


@pytest.mark.parametrize("span", [None, Span(6, 10, True), Span(6, 10, False)])
def test_a_partition_without_a_commit_has_the_lag_of_its_records(span: Span | None) -> None:
    assert _in_unit(LagRow("t", 0, -1, 10, 4), span) == (6, 4)


async def test_members_are_counted(broker: Broker) -> None:
    await stable(broker, "members")
    assert (await rows(broker))["kafka_consumergroup_members members"] == 1


async def test_a_retention_moves_the_start_and_not_the_end(broker: Broker) -> None:
    await broker.create("t", 1, storage_format="batch", offset_mode="time")
    await produce(broker, "t", 10)
    store, keys = broker.services.store, broker.services.keys
    before = await rows(broker)
    await store.command("XTRIM", keys.partition("t", 0).stream, "MAXLEN", 4)
    after = await rows(broker)
    end = "kafka_topic_partition_current_offset t 0"
    assert before[end] == after[end] == 10


async def test_topics_and_rows_above_the_bounds_are_left_out_and_counted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await broker.create(name, 2, offset_mode="dense")
    offsets = await produce(broker, "b", 3)
    for group in ("g", "h", "i"):
        await commit(broker, topic="b", group_id=group, offset=offsets[0])
    settings = broker.services.settings
    limits = {"monitoring.max.partitions": 5, "monitoring.max.groups": 2}
    real = type(settings).integer
    monkeypatch.setattr(
        type(settings), "integer", lambda self, name: limits.get(name) or real(self, name)
    )
    found = await rows(broker)
    names = {name for name in found if name.startswith("kafka_topic_partitions")}
    assert names == {"kafka_topic_partitions a", "kafka_topic_partitions b"}
    assert found["korvet_kafka_topics_not_shown"] == 1
    assert found["korvet_kafka_groups_not_shown"] == 1
    assert {name for name in found if name.startswith("kafka_consumergroup_lag_sum")} == {
        "kafka_consumergroup_lag_sum g b",
        "kafka_consumergroup_lag_sum h b",
    }


async def test_the_page_is_of_one_moment_and_its_survey_serves_the_other_metrics(
    broker: Broker,
) -> None:
    await broker.create("t", 1, offset_mode="time")
    offsets = await produce(broker, "t", 5)
    await commit(broker, group_id="g", offset=offsets[2])
    services = broker.services
    services.metrics.scraped()
    gauges = BackgroundTasks(services).group_gauges
    await gauges.update()
    await produce(broker, "t", 4)
    text = (await KafkaPage(services.lag_survey, services.registration).text()).decode()
    assert 'kafka_consumergroup_current_offset{consumergroup="g",topic="t",partition="0"} 2' in text
    before = services.lag_survey.last
    await gauges.update()
    assert services.lag_survey.last is before and gauges.lag() == {("g", "t", "0"): 7}
    await gauges.update()
    assert services.lag_survey.last is not before


async def test_a_group_id_may_have_any_characters(broker: Broker) -> None:
    await broker.create("t", 1)
    await commit(broker, group_id='quo"te\\back\nline')
    text = (await page_of(broker).text()).decode()
    ids = {
        sample.labels["consumergroup"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name == "kafka_consumergroup_members"
    }
    assert ids == {'quo"te\\back\nline'}


async def test_scrapes_within_the_freshness_share_a_page(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = page_of(broker)
    first, same = await asyncio.gather(page.text(), page.text())
    assert first is same
    await broker.create("t", 1)
    assert await page.text() is first
    monkeypatch.setattr(metric_pages, "FRESH_S", 0)
    assert b'topic="t"' in await page.text()


async def test_a_page_that_takes_long_is_answered_with_the_last_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_pages, "WAIT_S", 0.01)
    monkeypatch.setattr(metric_pages, "FRESH_S", 0)
    held = asyncio.Event()
    real = KafkaPage._read

    async def read(self: KafkaPage) -> None:
        await held.wait()
        await real(self)

    monkeypatch.setattr(KafkaPage, "_read", read)
    page = page_of(broker)
    with pytest.raises(NoPage, match="takes more than"):
        await page.text()
    held.set()
    assert page._reading is not None
    await page._reading
    first = await page.text()
    assert first
    held.clear()
    monkeypatch.setattr(metric_pages, "FRESH_S", 0)
    assert await page.text() is first
    held.set()
    assert page._reading is not None
    await page._reading


async def test_without_redis_there_is_no_page_but_a_reason(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> Any:
        raise RedisUnreachable("Redis is away")

    async def ready() -> str | None:
        return None

    monkeypatch.setattr(broker.services.topics, "all", away)
    page = OpsPage(Metrics(), ready, page_of(broker))
    status, _, body = await page.answer("/metrics/kafka")
    assert (status, body) == (503, b"Redis cannot be read: Redis is away\n")
