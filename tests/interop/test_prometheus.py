"""Check that Prometheus scrapes the pages, and that queries of board and alerts have rows."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.broker.ops.test_metrics import page
from tests.groups.test_classic_groups import committing
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.prometheus import filled_in, promtool, scraping
from tests.support.ports import free_port
from tests.support.raw_client import Peer, batch, to_fetch, to_produce, until
from tests.test_deploy import ALERTS, DEPLOY, board_queries

pytestmark = pytest.mark.interop

FILLED = [
    "korvet_topic_produced_records_total",
    "korvet_topic_fetched_bytes_total",
    "korvet_request_seconds_bucket",
    "korvet_fetch_work_seconds_bucket",
    "korvet_script_seconds_bucket",
    "korvet_redis_used_memory_bytes",
    "process_resident_memory_bytes",
]
"""Metrics that have rows at a broker with some traffic."""


BOARD_7589 = [
    "sum(rate(kafka_topic_partition_current_offset[1m])) by (topic) > 0",
    "sum(delta(kafka_topic_partition_current_offset[5m])/5) by (topic)",
    "sum(kafka_consumergroup_lag) by (consumergroup, topic) > 0",
    "sum(delta(kafka_consumergroup_current_offset[5m])/5) by (consumergroup, topic)",
    "sum by (topic) (kafka_topic_partitions)",
]
"""Queries of Grafana's board 7589, without their variables."""
PANELS = [filled_in(query) for query in board_queries() if not query.startswith("label_values")]


@pytest.fixture(params=[(), ("--workers", "2")], ids=["one process", "two workers"])
def used(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[int, Callable[[], Any]]]:
    """The ops port of a broker, and a function that produces, fetches and commits."""
    port = free_port()
    mine = Broker(tmp_path, {}, ("--ops", f"127.0.0.1:{port}", *request.param))
    mine.start()
    topic = create_topic(mine.address, storage_format="batch", offset_mode="dense")

    def traffic() -> None:
        with Peer(mine.address) as peer:
            peer.ask("Produce", 9, to_produce(topic, batch([b"v"])))
            peer.ask("Fetch", 12, to_fetch(topic))
            peer.ask("OffsetCommit", 8, committing(topic=topic, offset=0))

    traffic()
    yield port, traffic
    mine.close()


def test_the_metrics_are_named_as_prometheus_advises(used: tuple[int, Any]) -> None:
    status, text = page(used[0], "/metrics")
    assert status == 200 and "korvet_topic_produced_records_total" in text
    assert promtool("check", "metrics", stdin=text) == ""


def test_the_alert_rules_are_valid() -> None:
    promtool("check", "rules", str(DEPLOY / "prometheus/korvet.rules.yml"))


def test_the_alert_rules_fire_when_they_should(tmp_path: Path) -> None:
    def case(alert: str, at: str, series: dict[str, str], labels: dict[str, str]) -> Any:
        (rule,) = [each for each in ALERTS if each["alert"] == alert]
        labels = labels | {"severity": rule["labels"]["severity"]}
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": row} for name, row in series.items()],
            "alert_rule_test": [
                {"eval_time": "0m", "alertname": alert, "exp_alerts": []},
                {"eval_time": at, "alertname": alert, "exp_alerts": [{"exp_labels": labels}]},
            ],
        }

    lag = 'korvet_group_lag_records{group="g",topic="t",partition="0"}'
    redis = {"server": "r:6379"}
    cases = [
        case("KorvetBrokerDown", "5m", {'up{job="korvet",instance="a"}': "1 0 0 0 0 0"},
             {"job": "korvet", "instance": "a"}),
        case("KorvetRedisUnavailable", "3m", {'korvet_redis_up{instance="a"}': "1 0 0 0"},
             {"instance": "a"}),
        case("KorvetRedisMemoryHigh", "15m",
             {'korvet_redis_used_memory_bytes{server="r:6379"}': "90x20",
              'korvet_redis_max_memory_bytes{server="r:6379"}': "100x20"}, redis),
        case("KorvetGroupLagGrows", "60m", {lag: "0+1000x60"}, {"group": "g", "topic": "t"}),
        case("KorvetRequestErrors", "20m",
             {'korvet_requests_total{api="Produce",error="NONE"}': "0+90x20",
              'korvet_requests_total{api="Produce",error="KAFKA_STORAGE_ERROR"}': "0+10x20"},
             {"api": "Produce"}),
        case("KorvetRetentionStale", "90m",
             {'korvet_background_task_last_success_timestamp_seconds{task="retention"}': "0x90"},
             {"task": "retention"}),
    ]  # fmt: skip
    for each in cases:  # the texts are in the rules: only the labels are compared
        for wanted in each["alert_rule_test"]:
            for alert in wanted["exp_alerts"]:
                alert["exp_annotations"] = None
    rules = tmp_path / "rules.yml"
    bare = [{name: rule[name] for name in rule if name != "annotations"} for rule in ALERTS]
    rules.write_text(yaml.safe_dump({"groups": [{"name": "korvet", "rules": bare}]}))
    tested = tmp_path / "test.yml"
    tested.write_text(
        yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": cases})
    )
    promtool("test", "rules", str(tested))


def test_prometheus_answers_every_query_of_the_board_and_the_alerts(
    used: tuple[int, Callable[[], Any]], tmp_path: Path
) -> None:
    ops, traffic = used
    with scraping(ops, tmp_path) as prometheus:
        ask = prometheus.ask

        def has_rates() -> bool:
            traffic()
            return prometheus.has("sum(rate(korvet_topic_fetched_bytes_total[5s])) > 0")

        assert until(partial(prometheus.has, 'up{job="korvet"} == 1')) and until(has_rates)
        assert until(partial(prometheus.has, "korvet_group_lag_records > 0"), 30)
        assert ask('up{job="kafka"} == 1')
        for query in PANELS:
            assert ask(query) or not any(name in query for name in FILLED), query
        for query in BOARD_7589:  # the page is read every 10 s
            assert until(partial(prometheus.has, query), 30), query
        for rule in ALERTS:
            ask(rule["expr"])
        assert not ask('ALERTS{alertstate="firing"}')
