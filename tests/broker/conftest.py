"""Fixtures of the broker tests: brokers to be ill-treated, which may not stumble."""

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
    """A broker that every test may be rude to. It never stumbles: no traceback in its log."""
    rude = Broker(
        tmp_path_factory.mktemp("broker"),
        {},
        ("--redis", redis_of_broker.url),
    )
    rude.start()
    yield rude
    assert rude.stop() == 0
    assert "Traceback" not in rude.log


@pytest.fixture
def own_server() -> Iterator[TestServer]:
    """A Redis nobody else talks to: to be stopped."""
    with server("valkey") as running:
        yield running


def started(folder: Path, url: str, **settings: str) -> Broker:
    """A broker of one's own on that Redis, settings with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    mine = Broker(folder, named, ("--redis", url))
    mine.start()
    return mine
