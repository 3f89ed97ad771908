"""A console for each module, with topics and groups."""

import json
from collections.abc import Iterator

import httpx
import pytest

from korvet import Record
from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, running_console


@pytest.fixture(scope="module")
def console(valkey_server: TestServer) -> Iterator[RunningConsole]:
    """A console without security: topic `orders` with 60 records, group `billing` at its start."""
    with running_console(valkey_server) as made:
        made.log.create_topic("orders", 3)
        made.log.create_topic("batches", 2, {"storage.format": "batch", "offset.mode": "dense"})
        for name in ("orders", "batches"):
            made.log.produce(
                name,
                [
                    Record(
                        json.dumps({"id": at, "customer": {"name": f"c{at % 7}"}}).encode(),
                        key=f"k{at}".encode(),
                        headers=[("trace", b"t%d" % at)],
                        timestamp_ms=1_700_000_000_000 + at,
                    )
                    for at in range(60)
                ],
            )
        made.log.reset("billing", "orders", "earliest")
        made.log.reset("shipping", "orders", "latest")
        yield made


@pytest.fixture
def browser(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.browser() as made:
        yield made
