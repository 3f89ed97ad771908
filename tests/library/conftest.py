"""The application's client on each server."""

from collections.abc import Iterator

import pytest
import redis

from tests.support.redis_servers import TestServer


@pytest.fixture
def client(redis_server: TestServer) -> Iterator[redis.Redis]:
    """The application's client on each server."""
    with redis_server.client() as made:
        yield made
