"""`korvet topics create` under settings that were changed for all brokers."""

import pytest

from korvet.cli import run
from korvet.config.dynamic import ALL_BROKERS, encode_configs
from korvet.keys import Keys
from korvet.scripts import config
from korvet.store.sync_store import SyncStore
from tests.support.redis_servers import TestServer


def test_settings_changed_for_all_brokers_are_the_defaults(
    valkey_server: TestServer, capfd: pytest.CaptureFixture[str]
) -> None:
    changed = {"num.partitions": "3", "offset.mode": "dense", "log.retention.ms": "7000"}
    with valkey_server.client() as client:
        client.flushall()
        store = SyncStore(client)
        wanted = encode_configs(changed)
        store.run(config.alter(Keys(), resource=ALL_BROKERS, expected=b"", wanted=wanted))
    assert run(["topics", "create", "orders", "--redis", valkey_server.url]) == 0
    assert run(["topics", "describe", "orders", "--redis", valkey_server.url]) == 0
    said = capfd.readouterr().out
    assert "created orders with 3 partitions" in said
    assert "offset.mode\tdense\tdynamic_default_broker" in said
    assert "retention.ms\t7000\tdynamic_default_broker" in said


def test_a_name_that_differs_by_dots_and_underscores_only_is_refused(
    valkey_server: TestServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with valkey_server.client() as client:
        client.flushall()
    at = ("--redis", valkey_server.url)
    assert run(["topics", "create", "a.b", *at]) == 0
    assert run(["topics", "create", "a_b", *at]) == 2
    assert "Topic 'a_b' collides with existing topic: a.b" in capfd.readouterr().err
    assert run(["topics", "create", "a.b", *at]) == 2
    assert "Topic 'a.b' exists already." in capfd.readouterr().err
