"""What tests of the source and the sink need: an empty Redis, and Spark where a module asks."""

from collections.abc import Iterator

import pytest

from korvet.store.sync import SyncStore
from tests.servers import TestServer
from tests.spark.logs import Log


@pytest.fixture
def log(valkey_server: TestServer) -> Iterator[Log]:
    """An empty Redis with a connection to it."""
    with SyncStore.connect(valkey_server.url) as store:
        store.command("FLUSHALL")
        yield Log(store, valkey_server.url)
