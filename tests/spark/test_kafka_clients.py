"""Check that Spark reads the records of a Kafka consumer, and a consumer those of Spark."""

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from korvet.spark.option_parser import parse_write
from korvet.spark.write.writers import write_task
from korvet.store.sync_store import SyncStore
from tests.interop.brokers import Broker
from tests.spark.data_source_driver import read
from tests.spark.topic_log import LAYOUTS, Log, plain
from tests.support.redis_servers import server

layouts = pytest.mark.parametrize(("form", "mode"), LAYOUTS)
Seen = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


names = itertools.count()


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """The URL of the broker's Redis."""
    with server("valkey") as running:
        yield running.url


@pytest.fixture(scope="module")
def broker(redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for all tests of the module."""
    with Broker(tmp_path_factory.mktemp("consumers"), options=("--redis", redis)) as running:
        yield running


@pytest.fixture
def log(redis: str) -> Iterator[Log]:
    """The broker's Redis, with the topics of earlier tests."""
    with SyncStore.connect(redis) as store:
        yield Log(store, redis)


@pytest.fixture
def name() -> str:
    """A topic name that is unique among the tests."""
    return f"topic-{next(names)}"


async def consumed(address: str, topic: str, partitions: int, count: int) -> list[Seen]:
    """Return the first `count` records of the topic from a plain consumer."""
    parts = [TopicPartition(topic, number) for number in range(partitions)]
    found: list[Seen] = []
    async with AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as reader:
        reader.assign(parts)
        await reader.seek_to_beginning(*parts)
        while len(found) < count:
            for batch in (await reader.getmany(timeout_ms=500)).values():
                found += [
                    (r.partition, r.offset, r.timestamp, r.key, r.value, list(r.headers))
                    for r in batch
                ]
    return sorted(found)


def by_spark(log: Log, topic: str) -> list[Seen]:
    """Return the topic's records as Spark reads them."""
    found = []
    for row in read(log.url, subscribe=topic, includeHeaders="true"):
        headers = [(pair["key"], pair["value"]) for pair in row["headers"] or []]
        moment = round(row["timestamp"].timestamp() * 1000)
        place = (row["partition"], row["offset"], moment)
        found.append((*place, row["key"], row["value"], headers))
    return sorted(found)


@layouts
@pytest.mark.parametrize("codec", [None, "lz4"])
async def test_spark_and_a_consumer_see_the_same_records(
    log: Log, broker: Broker, name: str, form: str, mode: str, codec: str | None
) -> None:
    topic = log.create(name, 2, form, mode)
    producer: Any = AIOKafkaProducer(bootstrap_servers=broker.address, compression_type=codec)
    async with producer:
        for n in range(300):
            headers = [("h", b"%d" % n), ("none", None)] if n % 7 == 0 else []
            key = b"k%d" % (n % 11) if n % 3 else None
            value = None if n % 13 == 0 and key else b"v" * (n * 5)
            await producer.send(name, value, key=key, headers=headers, timestamp_ms=10**12 + n)
    log.append(topic, 1, plain(20))
    found = by_spark(log, name)
    assert len(found) == 320
    assert found == await consumed(broker.address, name, 2, 320)


@layouts
async def test_a_consumer_gets_what_spark_has_written(
    log: Log, broker: Broker, name: str, form: str, mode: str
) -> None:
    log.create(name, 3, form, mode)
    keys = [None if n % 4 == 0 else f"key-{n % 17}" for n in range(3000)]
    values = [str(n) * (n % 9) for n in range(3000)]
    given = parse_write({"redis": log.url, "topic": name}, streaming=False)
    batches = pa.table({"key": keys, "value": values}).to_batches(max_chunksize=700)
    for _ in range(2):
        write_task(given, "w", 0, 0, iter(batches))
    found = await consumed(broker.address, name, 3, 3000)
    assert found == by_spark(log, name)
    got = sorted(((key or b"").decode(), (value or b"").decode()) for *_, key, value, _ in found)
    assert got == sorted((key or "", value) for key, value in zip(keys, values, strict=True))
