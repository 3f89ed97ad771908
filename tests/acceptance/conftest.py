"""The specification's configuration: namespace korvet, record layout, time offsets, 10 bits."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.interop.brokers import Broker
from tests.support.redis_servers import server


@pytest.fixture(scope="session")
def seed_redis() -> Iterator[str]:
    """The URL of the Redis that `seed_broker` writes to."""
    with server("valkey") as running:
        yield running.url


@pytest.fixture(scope="session")
def seed_broker(tmp_path_factory: pytest.TempPathFactory, seed_redis: str) -> Iterator[Broker]:
    """A broker with the specification's configuration."""
    broker = Broker(tmp_path_factory.mktemp("seed"), {}, ("--redis", seed_redis))
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def store(seed_redis: str) -> Iterator[Any]:
    """A plain client of that Redis."""
    client = redis.Redis.from_url(seed_redis)
    yield client
    client.close()
