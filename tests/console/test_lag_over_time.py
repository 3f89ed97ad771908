"""Check the lag of a group over time, on its page: beyond an open page, on each broker."""

import re
import time

import httpx
import pytest

from korvet import Record
from korvet.console.render import chart
from tests.support.lag_samples import plant
from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, running_console


def wait_for_samples(console: RunningConsole, group: str) -> list[int]:
    """Wait until the console has recorded; return the lag at each time."""
    end = time.monotonic() + 20
    while not (found := console.api("/group", id=group)["history"]["totals"]):
        assert time.monotonic() < end
        time.sleep(0.1)
    return list(found)


@pytest.mark.processes
def test_an_open_console_records_and_any_broker_shows_it(valkey_server: TestServer) -> None:
    with running_console(valkey_server) as first:
        first.log.create_topic("orders", 2)
        first.log.append("orders", 1, [Record(b"x") for _ in range(30)])
        first.log.reset("billing", "orders", "earliest")
        namespace = first.namespace
        assert wait_for_samples(first, "billing") == [30]
        recorded = first.api("/group", id="billing")["history"]
        assert [(row["partition"], row["lags"]) for row in recorded["partitions"]] == [(1, [30])]
        assert first.api("/group", id="billing", history=0)["history"] is None
    with running_console(valkey_server, namespace=namespace, node_id=1) as second:
        kept = second.api("/group", id="billing")["history"]
        assert (kept["times_ms"][0], kept["totals"][0]) == (recorded["times_ms"][0], 30)


def test_the_page_draws_the_hour_and_the_day(
    console: RunningConsole, browser: httpx.Client
) -> None:
    console.log.reset("slow", "orders", "earliest")
    # More than the 60 records that the console itself may record meanwhile.
    ages = {600: 900, 45: 50, 3: 500, 2: 400, 1: 300}
    plant(console, "slow", {age: {"orders": [0, lag, 1, 1]} for age, lag in ages.items()})
    found = console.api("/group", id="slow")["history"]
    assert found["totals"][:5] == [901, 51, 501, 401, 301] and found["hour"] in (4, 5)
    lines = {(row["topic"], row["partition"]): row["lags"] for row in found["partitions"]}
    assert lines["orders", 0][:4] == [50, 500, 400, 300] and lines["orders", 1][:4] == [1] * 4
    page = browser.get("/group", params={"id": "slow"}).text
    assert re.search(r"The last hour: at most <strong>501<", page)
    assert re.search(r"The last day: at most <strong>901<", page)
    assert "By partition, the last hour" in page


@pytest.mark.parametrize(
    ("samples", "lines"),
    [
        ({}, []),
        ({0: 5, 60: 5}, ["0.0,2.0 0.0,2.0", "356.0,2.0 360.0,2.0"]),
        ({0: 0, 15: 0}, ["0.0,59.0 0.0,59.0 90.0,59.0"]),
        (
            {0: 4, 10: 2, 60: 4, 70: 0},
            ["0.0,2.0 0.0,2.0 60.0,30.5", "356.0,2.0 360.0,2.0 420.0,59.0"],
        ),
        ({-5: 1, 100: 4}, ["596.0,2.0 600.0,2.0"]),
    ],
)
def test_a_gap_in_the_samples_is_a_gap_in_the_chart(
    samples: dict[int, int], lines: list[str]
) -> None:
    assert chart(list(samples), list(samples.values()), 0, 100, 20).lines == lines
