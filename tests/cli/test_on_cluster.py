"""Check commands on a Redis Cluster."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from korvet import Korvet, Record
from korvet.cli import run
from tests.store.cluster_topology import TestCluster, cluster


@pytest.fixture(scope="module")
def nodes() -> Iterator[TestCluster]:
    """Three masters."""
    with cluster() as running:
        yield running


def test_commands_reach_every_node(nodes: TestCluster, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--redis", nodes.url]
    assert run(["topics", "create", "orders", "-p", "6", *at]) == 0
    assert run(["topics", "alter", "orders", "--config", "retention.ms=5000000", *at]) == 0
    assert run(["groups", "create", "readers", "-t", "orders", *at]) == 0
    assert run(["brokers", "list", *at]) == 0
    assert run(["topics", "trim", "orders", "--before", "latest", *at]) == 0
    capsys.readouterr()
    assert run(["groups", "describe", "readers", "--json", *at]) == 0
    assert len(json.loads(capsys.readouterr().out)["offsets"]) == 6
    assert run(["top", "--times", "2", "--interval", "0.1", *at]) == 0
    out = capsys.readouterr().out
    assert "orders\t6\t0\t" in out and "readers\tEmpty\t0\t0\t" in out
    assert "1 brokers" not in out and " 3 Redis: " in out
    assert run(["doctor", "--fix", *at]) == 2
    assert "name each master of the cluster in turn" in capsys.readouterr().err
    assert run(["topics", "delete", "orders", *at]) == 0


def test_a_backup_of_a_cluster_is_restored_into_another_namespace(
    nodes: TestCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at, copy = ["--redis", nodes.url], ["--redis", nodes.url, "--namespace", "copy"]
    log = Korvet.connect(nodes.url)
    for layout in ("record", "batch"):
        log.create_topic(layout, 6, {"storage.format": layout, "offset.mode": "dense"})
        log.produce(layout, [Record(b"%d" % at, key=b"k%d" % at) for at in range(120)])
    log.reset("readers", "batch", "earliest")
    assert run(["backup", str(tmp_path), *at]) == 0
    assert run(["restore", "--from", str(tmp_path), "--offset-gap", "0", *copy]) == 0
    assert "240 records, 1 groups" in capsys.readouterr().out
    restored = Korvet.connect(nodes.url, namespace="copy")
    for layout in ("record", "batch"):
        for number in range(6):
            expected = log.fetch(layout, number, 0).records
            assert restored.fetch(layout, number, 0).records == expected != []
    assert sum(row.lag for row in restored.committed("readers")) == 120
    log.close()
    restored.close()
