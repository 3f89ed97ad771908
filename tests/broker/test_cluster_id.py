"""Check that the first broker names the cluster, and others log a different cluster.id."""

import logging

import pytest

from korvet.broker.server import _join, connected
from korvet.cluster.registration import Endpoint
from korvet.config.broker_config import load
from tests.support.redis_servers import TestServer


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([], []),
        (["cluster.id=first"], []),
        (
            ["cluster.id=second"],
            [{"id": "first", "given": "second"}],
        ),
    ],
)
async def test_a_broker_with_another_cluster_id_logs_a_warning(
    valkey_server: TestServer,
    caplog: pytest.LogCaptureFixture,
    sets: list[str],
    said: list[dict[str, str]],
) -> None:
    with valkey_server.client() as client:
        client.flushall()
    options = {"redis": valkey_server.url, "listen": "127.0.0.1:0"}
    async with connected(load(options, sets=["cluster.id=first"], environ={})) as node:
        await _join(node, [Endpoint("PLAINTEXT", "h", 1)])
    with caplog.at_level(logging.WARNING, "korvet"):
        async with connected(load(options, sets=sets, environ={})) as node:
            await _join(node, [Endpoint("PLAINTEXT", "h", 1)])
            assert node.registration.cluster_id == "first"
    assert [vars(row)["fields"] for row in caplog.records] == said
