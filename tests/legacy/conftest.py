"""Brokers that also serve Kafka 0.7, each as a separate process."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.interop.jvm import Jvm
from tests.legacy.clients import old07, old08
from tests.legacy.wire import Client
from tests.support.ports import free_port
from tests.support.programs import Build

LEGACY = "legacy listening on "
_numbers = itertools.count()


@dataclass
class LegacyBroker(Broker):
    """A broker that also serves Kafka 0.7; `legacy` is the address for its clients."""

    legacy: str = ""

    def start(self) -> None:
        mine = self.options
        self.options = (*mine, "--legacy-listen", self.legacy or f"127.0.0.1:{free_port()}")
        super().start()
        self.options = mine
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(LEGACY), f"{line!r}\n{self.log}"
        self.legacy = line.removeprefix(LEGACY).strip()

    def client(self) -> Client:
        return Client(self.legacy)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyBroker]:
    """A broker shared by all tests that neither stop nor configure it."""
    broker = LegacyBroker(tmp_path_factory.mktemp("legacy"))
    broker.start()
    yield broker
    broker.close()
    assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def broker(shared_broker: LegacyBroker) -> LegacyBroker:
    return shared_broker


@pytest.fixture
def client(broker: LegacyBroker) -> Iterator[Client]:
    """A connection of a Kafka 0.7 client."""
    with broker.client() as connected:
        yield connected


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LegacyBroker]:
    """A broker for one test; not started yet."""
    broker = LegacyBroker(tmp_path)
    yield broker
    broker.close()


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"legacy-{next(_numbers)}"


@pytest.fixture(scope="session")
def jafka(build: Build) -> Jvm:
    """The Java port of Kafka 0.7 (its jars include ZooKeeper)."""
    return old07(build)


@pytest.fixture(scope="session", params=["0.8.0", "0.8.2.2"])
def kafka(request: pytest.FixtureRequest, build: Build) -> Jvm:
    return old08(build, request.param)
