"""Prometheus scrapes the pages, and answers the board's and the alerts' queries."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.broker.test_metrics import free_port, page
from tests.groups.test_classic_groups import committing
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.support.raw_client import Peer, batch, to_fetch, to_produce, until
from tests.test_deploy import ALERTS, DEPLOY, board_queries

pytestmark = pytest.mark.interop

VARIABLES = {"$__rate_interval": "5s", "$job": ".*", "$instance": ".*"}
VARIABLES |= {"$topic": ".*", "$group": ".*"}
FILLED = [
    "korvet_topic_produced_records_total",
    "korvet_topic_fetched_bytes_total",
    "korvet_request_seconds_bucket",
    "korvet_fetch_work_seconds_bucket",
    "korvet_script_seconds_bucket",
    "korvet_redis_used_memory_bytes",
    "process_resident_memory_bytes",
]
"""Metrics of which a broker with some traffic has rows."""


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not installed: these tests are part of the suite, install it"
    return found


def promtool(*words: str, stdin: str = "") -> str:
    """What promtool prints; it has succeeded."""
    done = subprocess.run(
        [program("promtool"), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def filled_in(query: str) -> str:
    """The query as Grafana sends it."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


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
    """The ops port of a broker, and how to produce, fetch and commit."""
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
    port = free_port()
    config = tmp_path / "prometheus.yml"
    jobs = [
        {
            "job_name": job,
            "metrics_path": path,
            "static_configs": [{"targets": [f"127.0.0.1:{ops}"]}],
        }
        for job, path in (("korvet", "/metrics"), ("kafka", "/metrics/kafka"))
    ]
    config.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "rule_files": [str(DEPLOY / "prometheus/korvet.rules.yml")],
                "scrape_configs": jobs,
            }
        )
    )
    words = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
    words += [f"--web.listen-address=127.0.0.1:{port}"]
    log = (tmp_path / "prometheus.log").open("w")
    process = subprocess.Popen([program("prometheus"), *words], stdout=log, stderr=log)

    def ask(query: str) -> list[Any]:
        url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            rows: list[Any] = json.load(answer)["data"]["result"]
            return rows

    def ask_any(query: str) -> bool:
        return bool(ask(query))

    def serves() -> bool:
        try:
            return bool(ask('up{job="korvet"} == 1'))
        except OSError:
            return False

    def has_rates() -> bool:
        traffic()
        return bool(ask("sum(rate(korvet_topic_fetched_bytes_total[5s])) > 0"))

    try:
        assert until(serves) and until(has_rates)
        assert until(lambda: bool(ask("korvet_group_lag_records > 0")), 30)
        assert ask('up{job="kafka"} == 1')
        for query in PANELS:
            assert ask(query) or not any(name in query for name in FILLED), query
        for query in BOARD_7589:  # the page is read every 10 s
            assert until(partial(ask_any, query), 30), query
        for rule in ALERTS:
            ask(rule["expr"])
        assert not ask('ALERTS{alertstate="firing"}')
    finally:
        process.terminate()
        process.wait()
        log.close()
