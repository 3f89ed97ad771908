"""Fixtures of the interop tests: brokers in every layout, and new topics."""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from korvet.apis import TABLE
from tests.interop.brokers import EXTERNAL, LAYOUTS, Broker, Brokers
from tests.interop.jvm import HERE, TOOLS_VERSION, Jvm, Tools, prepared, tools
from tests.support.programs import Build
from tests.support.redis_servers import server

MakeTopic = Callable[..., str]


def pytest_configure(config: pytest.Config) -> None:
    """Register markers.

    `korvet_only` tests need Korvet's process, its Redis, or versions Apache Kafka dropped.
    """
    config.addinivalue_line("markers", "korvet_only: not collected when another broker is named")
    config.addinivalue_line("markers", "needs_api(key): collected once the table of APIs has it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that only Korvet can pass, or of APIs that Korvet does not serve yet."""
    served = {api.key for api in TABLE}

    def applies(item: pytest.Item) -> bool:
        if EXTERNAL:
            return item.get_closest_marker("korvet_only") is None
        return all(mark.args[0] in served for mark in item.iter_markers("needs_api"))

    left_out = [item for item in items if not applies(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if applies(item)]


def refusal(future: Any) -> int:
    """Return the error code with which a request fails."""
    with pytest.raises(KafkaException) as caught:
        future.result(60)
    code: int = caught.value.args[0].code()
    return code


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Every broker of the session; none may have logged a traceback."""
    running = Brokers(tmp_path_factory.mktemp("brokers"))
    yield running
    assert running.close() == []


_LATER = [pytest.param(pair, marks=pytest.mark.processes) for pair in LAYOUTS[1:]]


@pytest.fixture(
    params=[None] if EXTERNAL else [LAYOUTS[0], *_LATER],
    ids=lambda pair: "-".join(pair or ["other"]),
)
def broker(request: pytest.FixtureRequest, brokers: Brokers) -> Broker:
    """A running broker, once for each layout and offset mode."""
    form, mode = request.param or ("", "")
    return brokers.serving(storage_format=form, offset_mode=mode)


@pytest.fixture
def default_broker(brokers: Brokers) -> Broker:
    """A running broker with no settings but those of all brokers."""
    return brokers.serving()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test alone, which may kill it."""
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.close()
    # pytest shows this with a failed test.
    sys.stdout.write(broker.log)


@pytest.fixture(scope="session")
def own_redis() -> Iterator[str]:
    """The URL of a Redis that `native_broker` writes to and a test may read."""
    with server("valkey") as running:
        yield running.url


@pytest.fixture(scope="session", params=["time", "dense"])
def native_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, own_redis: str
) -> Iterator[Broker]:
    """A broker of the record layout on `own_redis`, in its own namespace."""
    broker = Broker(
        tmp_path_factory.mktemp("native"),
        {"storage.format": "record", "offset.mode": request.param, "storage.compression": "none"},
        ("--redis", own_redis, "--namespace", f"native-{request.param}"),
    )
    broker.start()
    yield broker
    broker.close()


_numbers = itertools.count()


def topic_name(prefix: str = "topic") -> str:
    """Return a name that no other test uses, in this or any earlier run."""
    return f"{prefix}-{time.time_ns() // 1_000_000:x}-{next(_numbers)}"


def change_broker(bootstrap: str, **settings: str) -> None:
    """Set these settings of broker 0; their names with underscores for dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(60)


def create_topic(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic that clients can use at once; config names with underscores for dots."""
    name = topic_name()
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, 1, config=named)], operation_timeout=60)
    made[name].result(60)
    return name


@pytest.fixture(scope="session")
def java(build: Build) -> Jvm:
    """Kafka's Java client."""
    return prepared(build, HERE / "clients")


@pytest.fixture(scope="session")
def java_tools(build: Build) -> Iterator[Tools]:
    """Kafka's own tools, and Streams."""
    with tools(build) as found:
        yield found


@pytest.fixture(scope="session", params=["4.3.1", "4.4.0"])
def share_tools(request: pytest.FixtureRequest, build: Build) -> Iterator[Tools]:
    """Kafka's tools of the versions whose share groups are stable."""
    if request.param == TOOLS_VERSION:
        yield request.getfixturevalue("java_tools")
        return
    with tools(build, request.param) as found:
        yield found


@pytest.fixture
def admin(default_broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": default_broker.address})
