"""Fill topics with equal records, on Redis and on a Kafka."""

import asyncio
import os
from collections.abc import Callable
from typing import NamedTuple

from korvet.store.sync_store import SyncStore
from korvet.wire.records import Record
from tests.spark.topic_log import Log

PARTITIONS = 4
BATCH = 1000


class Target(NamedTuple):
    """A topic that Spark reads and writes."""

    name: str
    format: str
    reading: dict[str, str]
    writing: dict[str, str]
    fresh: Callable[[str], str]
    """Creates an empty topic of that name."""


def korvet_target(redis: str, form: str) -> Target:
    """Return the target of a topic of this layout, read and written by format `korvet`."""

    def fresh(name: str) -> str:
        with SyncStore.connect(redis) as store:
            Log(store, redis).create(name, PARTITIONS, form, "dense")
        return name

    return Target(
        f"korvet {form}",
        "korvet",
        {"redis": redis, "subscribe": f"bench-{form}"},
        {"redis": redis},
        fresh,
    )


def fill_korvet(redis: str, target: Target, records: int) -> None:
    """Fill the target's topic in batches of a thousand records."""
    name = target.reading["subscribe"]
    with SyncStore.connect(redis) as store:
        if store.command("HEXISTS", "korvet:topics", name):
            return
        log = Log(store, redis)
        topic = log.create(name, PARTITIONS, name.removeprefix("bench-"), "dense")
        values = [os.urandom(100) for _ in range(BATCH)]
        for n in range(records // BATCH):
            found: list[Record] = [
                (i, 1_700_000_000_000 + n, b"%08d" % i, v, []) for i, v in enumerate(values)
            ]
            log.append(topic, n % PARTITIONS, found)
            log.written.clear()


def kafka_target(address: str) -> Target:
    """Return the target of a topic on a Kafka, read and written by Spark's connector."""

    def fresh(name: str) -> str:
        _create(address, name)
        return name

    servers = {"kafka.bootstrap.servers": address}
    return Target("kafka", "kafka", {**servers, "subscribe": "bench"}, servers, fresh)


def fill_kafka(address: str, target: Target, records: int) -> None:
    """Fill a topic on the Kafka with the same records, unless it exists."""
    if _create(address, target.reading["subscribe"]):
        asyncio.run(_produce(address, target.reading["subscribe"], records))


def _create(address: str, name: str) -> bool:
    """Create the topic and return whether it was missing."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    if name in admin.list_topics(timeout=10).topics:
        return False
    # The records are years old: Kafka would soon delete them.
    kept = NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"})
    for future in admin.create_topics([kept]).values():
        future.result(30)
    return True


async def _produce(address: str, name: str, records: int) -> None:
    from aiokafka import AIOKafkaProducer

    values = [os.urandom(100) for _ in range(BATCH)]
    async with AIOKafkaProducer(bootstrap_servers=address, max_batch_size=1 << 18) as producer:
        for n in range(records // BATCH):
            batch = producer.create_batch()
            for i, value in enumerate(values):
                batch.append(key=b"%08d" % i, value=value, timestamp=1_700_000_000_000 + n)
            await producer.send_batch(batch, name, partition=n % PARTITIONS)
