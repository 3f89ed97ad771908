"""Commands on a Redis Cluster."""

import json
from collections.abc import Iterator

import pytest

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
