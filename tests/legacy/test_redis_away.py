"""Check Kafka 0.7 produce requests during a Redis outage. Their clients never retry."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from korvet.legacy.produce import STOPPING
from tests.interop.librdkafka import eventually
from tests.legacy.conftest import LegacyBroker
from tests.legacy.wire import Client, message, produce
from tests.support.redis_servers import TestServer, server

pytestmark = pytest.mark.processes

SETS = [message(b"%03d" % n) for n in range(40)]


class Away:
    """A broker and its Redis, which a test can fill up or disconnect."""

    def __init__(self, folder: Path, running: TestServer) -> None:
        self.redis: redis.Redis = running.client()
        self._there = running.url.removeprefix("unix://")
        self._link = folder / "link.sock"
        self.back()
        self.broker = LegacyBroker(folder, {}, ("--redis", f"unix://{self._link}"))

    def full(self, most: int = 1) -> None:
        self.redis.config_set("maxmemory", most)

    def gone(self) -> None:
        self._link.unlink()
        self.redis.client_kill_filter(_type="normal", skipme=True)
        with self.broker.client() as other:
            eventually(lambda: other.fetch("any", 0)[0] == -1)

    def back(self) -> None:
        self._link.symlink_to(self._there)


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Away]:
    with server("valkey") as running:
        made = Away(tmp_path, running)
        made.broker.start()
        yield made
        made.broker.close()
        made.redis.close()
        assert "Traceback" not in made.broker.log, made.broker.log


def sent(client: Client, sets: list[bytes]) -> None:
    client.send(b"".join(produce("events", each) for each in sets))


def test_what_a_full_redis_refuses_is_stored_once_there_is_room(away: Away) -> None:
    with away.broker.client() as client:
        sent(client, SETS[:2])
        assert client.fetch("events", 0) == (0, b"".join(SETS[:2]))
        away.full()
        sent(client, SETS[2:20])
        eventually(lambda: "produced sets wait for Redis" in away.broker.log)
        sent(client, SETS[20:])
        away.full(0)
        assert client.fetch("events", 0) == (0, b"".join(SETS))


def test_what_comes_while_there_is_no_redis_is_stored_in_order(away: Away) -> None:
    with away.broker.client() as client, away.broker.client() as other:
        sent(client, SETS[:2])
        assert client.fetch("events", 0)[0] == 0
        away.gone()
        sent(client, SETS[2:30])
        sent(client, SETS[30:])
        other.send(produce("new", SETS[0]))
        eventually(lambda: away.broker.log.count("produced sets wait for Redis") == 2)
        away.back()
        # Reads use a separate Redis connection, which may reconnect later than the writes'.
        eventually(lambda: client.fetch("events", 0) == (0, b"".join(SETS)))
        eventually(lambda: other.fetch("new", 0) == (0, SETS[0]))


def test_a_client_that_hangs_up_meanwhile_loses_nothing(away: Away) -> None:
    with away.broker.client() as client:
        sent(client, SETS[:2])
        assert client.fetch("events", 0)[0] == 0
        away.gone()
        sent(client, SETS[2:])
    away.back()
    with away.broker.client() as client:
        eventually(lambda: client.fetch("events", 0) == (0, b"".join(SETS)))


def test_sets_that_a_stopping_broker_drops_are_logged(away: Away) -> None:
    with away.broker.client() as client:
        sent(client, SETS[:2])
        assert client.fetch("events", 0)[0] == 0
        away.gone()
        sent(client, SETS[2:])
        eventually(lambda: "produced sets wait for Redis" in away.broker.log)
        assert away.broker.stop() == 0
    lines = [row for row in away.broker.log.splitlines() if STOPPING in row]
    assert any("produced set refused" in row and "topic=events" in row for row in lines), lines
