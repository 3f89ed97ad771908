"""Check topics whose old records are in segments of a remote store."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from korvet import Record
from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, running_console


@pytest.fixture
def tiered(valkey_server: TestServer, tmp_path: Path) -> Iterator[RunningConsole]:
    sets = (
        "remote.log.storage.system.enable=true",
        f"remote.storage.url=file://{tmp_path}",
        "remote.log.manager.task.interval.ms=50",
    )
    with running_console(valkey_server, *sets) as made:
        yield made


def test_records_of_segments_are_shown_and_found(tiered: RunningConsole) -> None:
    configs = {
        "remote.storage.enable": "true",
        "segment.bytes": "50000",
        "local.retention.bytes": "1",
        "offset.mode": "dense",
    }
    tiered.log.create_topic("cold", 1, configs)
    for at in range(50):
        tiered.log.append("cold", 0, [Record(b"v" * 10_000, key=b"k%d" % at)])
    until = monotonic() + 30
    while True:
        (row,) = tiered.api("/topics/cold")["partitions"]
        if row["local_start"] > row["earliest"]:
            break
        assert monotonic() < until, row
        sleep(0.05)
    assert row["earliest"] == 0 and row["segments"] > 0 and row["segment_records"] > 0
    assert (row["records"], row["latest"]) == (50, 50)
    assert tiered.api("/topics")["topics"][0]["records"] == 50
    found = tiered.api("/topics/cold/records", **{"from": "earliest"})["records"]
    assert [each["offset"] for each in found] == list(range(25))
    (record,) = tiered.api("/topics/cold/records", key="k1")["records"]
    assert record["offset"] == 1
    assert tiered.api("/topics/cold/records/0/1")["record"]["key"]["text"] == "k1"
    newest = tiered.api("/topics/cold/records")["records"]
    assert [each["offset"] for each in newest] == list(range(49, 24, -1))
