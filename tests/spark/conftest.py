"""Fixtures for the tests of the source and the sink: an empty Redis and a Spark session."""

from collections.abc import Iterator
from typing import Any

import pytest

from korvet.store.sync_store import SyncStore
from tests.spark.spark_sessions import QUICK, SMALL, collect_sockets, session
from tests.spark.topic_log import Log
from tests.support.redis_servers import TestServer


@pytest.fixture
def log(valkey_server: TestServer) -> Iterator[Log]:
    """An empty Redis with a connection to it."""
    with SyncStore.connect(valkey_server.url) as store:
        store.command("FLUSHALL")
        yield Log(store, valkey_server.url)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A Spark session with up to three attempts per task."""
    with session("local[2,3]", spark__driver__extraJavaOptions=QUICK, **SMALL) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def no_sockets_left() -> Iterator[None]:
    """Collect what a module with Spark leaves, in that module."""
    yield
    collect_sockets()
