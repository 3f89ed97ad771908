"""Check the pages after all kinds of traffic, and the groups of two brokers on one Redis."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from korvet import Korvet
from tests.broker.ops.test_metrics import page
from tests.interop.all_traffic import AllTraffic, all_traffic
from tests.interop.brokers import Broker
from tests.interop.prometheus import filled_in, promtool, scraping
from tests.support.ports import free_port
from tests.support.raw_client import until
from tests.support.redis_servers import server
from tests.test_deploy import BOARD

pytestmark = pytest.mark.interop

USED = {
    "korvet_requests",
    "korvet_request_seconds",
    "korvet_script_seconds",
    "korvet_fetch_record_age_seconds",
    "korvet_topic_produced_records",
    "korvet_authentications",
    "korvet_share_group_records",
    "korvet_share_group_finished_records",
    "korvet_remote_request_seconds",
    "korvet_remote_written_bytes",
    "korvet_retention_held_records",
    "korvet_scheduled_appended_records",
    "korvet_scheduled_late_seconds",
    "korvet_background_task_seconds",
    "korvet_group_lag_records",
}
"""Families that have rows once all kinds of traffic were served."""
KAFKA_LINT = "".join(
    f'{name} non-histogram and non-summary metrics should not have "_sum" suffix\n'
    for name in ("kafka_consumergroup_current_offset_sum", "kafka_consumergroup_lag_sum")
)
"""promtool's notes on names of kafka_exporter, which dashboards query."""
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AllTraffic, int]]:
    with all_traffic(tmp_path_factory.mktemp("all")) as found:
        found[0].round()
        yield found


def families(port: int, path: str = "/metrics") -> set[str]:
    """Return the families of the page that have rows with a value above 0."""
    return {
        family.name
        for family in text_string_to_metric_families(page(port, path)[1])
        if any(sample.value for sample in family.samples)
    }


def test_the_page_follows_the_conventions_after_all_kinds_of_traffic(
    used: tuple[AllTraffic, int],
) -> None:
    traffic, port = used

    def is_filled() -> bool:
        traffic.round()
        return families(port) >= USED

    assert until(is_filled, 60), USED - families(port)
    text = page(port, "/metrics")[1]
    assert promtool("check", "metrics", stdin=text) == ""
    types = set(re.findall(r"^# TYPE \S+ (\w+)$", text, re.MULTILINE))
    assert types == {"counter", "gauge", "histogram"}


def test_kafka_exporters_names_are_all_that_promtool_notes(used: tuple[AllTraffic, int]) -> None:
    _, port = used
    until(lambda: page(port, "/metrics/kafka")[0] == 200, 30)
    text = page(port, "/metrics/kafka")[1]
    assert promtool("check", "metrics", stdin=text, code=3) == KAFKA_LINT
    assert set(re.findall(r"^# TYPE \S+ (\w+)$", text, re.MULTILINE)) == {"gauge"}


def test_no_panel_of_the_board_is_empty(used: tuple[AllTraffic, int], tmp_path: Path) -> None:
    traffic, port = used
    with scraping(port, tmp_path) as prometheus:
        assert until(partial(prometheus.has, 'up{job="korvet"} == 1'))
        traffic.round()
        traffic.fail()
        empty = {panel["title"]: panel for panel in PANELS}

        def are_filled() -> bool:
            traffic.round()
            for title, panel in list(empty.items()):
                if any(prometheus.has(filled_in(each["expr"])) for each in panel["targets"]):
                    del empty[title]
            return not empty

        assert until(are_filled, 60), list(empty)


def group_rows(port: int) -> tuple[set[str], float, float]:
    """Return the groups with rows of members, the number of groups, and of those not shown."""
    found = {
        family.name: family.samples
        for family in text_string_to_metric_families(page(port, "/metrics")[1])
    }
    names = {sample.labels["group"] for sample in found.get("korvet_group_members", ())}
    total, hidden = (
        sum(sample.value for sample in found.get(name, ()))
        for name in ("korvet_groups", "korvet_groups_not_shown")
    )
    return names, total, hidden


@pytest.fixture(scope="module")
def three_hundred() -> Iterator[str]:
    """The URL of a Redis with 300 groups."""
    with server("valkey") as running:
        with Korvet.connect(running.url) as log:
            log.create_topic("orders", 1)
            for number in range(300):
                log.commit(f"group-{number:03}", {("orders", 0): 0})
        yield running.url


@pytest.mark.parametrize(("most", "shown"), [("1000", 300), ("200", 200)])
def test_a_broker_without_an_ops_port_leaves_the_groups_to_the_other(
    three_hundred: str, tmp_path: Path, most: str, shown: int
) -> None:
    port, redis = free_port(), ("--redis", three_hundred)
    settings = {"monitoring.max.groups": most}
    first = Broker(tmp_path / "first", settings, (*redis, "--ops", "off"))
    second = Broker(
        tmp_path / "second", settings, (*redis, "--node-id", "1", "--ops", f"127.0.0.1:{port}")
    )
    with first, second:
        assert until(lambda: bool(group_rows(port)[0]), 60)
        names, total, hidden = group_rows(port)
        assert (len(names), total, hidden) == (shown, 300, 300 - shown)
