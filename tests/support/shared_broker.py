"""Fixtures: a broker for bad requests, which must not log an exception."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.support.redis_servers import TestServer, server


@pytest.fixture(scope="session")
def redis_of_broker() -> Iterator[TestServer]:
    """The Redis of `broker`."""
    with server("valkey") as running:
        yield running


@pytest.fixture(scope="session")
def broker(
    tmp_path_factory: pytest.TempPathFactory, redis_of_broker: TestServer
) -> Iterator[Broker]:
    """A broker that tests send bad requests to. Its log has no traceback at the end."""
    running_broker = Broker(
        tmp_path_factory.mktemp("broker"),
        {},
        ("--redis", redis_of_broker.url),
    )
    running_broker.start()
    yield running_broker
    assert running_broker.stop() == 0
    assert "Traceback" not in running_broker.log


@pytest.fixture
def own_server() -> Iterator[TestServer]:
    """A Redis of this test alone, which may stop it."""
    with server("valkey") as running:
        yield running


def started(folder: Path, url: str, **settings: str) -> Broker:
    """Start a broker on that Redis, settings with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    mine = Broker(folder, named, ("--redis", url))
    mine.start()
    return mine
