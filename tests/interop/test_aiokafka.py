"""Check aiokafka at its default settings."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.records import CODECS, EVERY_SHAPE, PRESENT, Record

PATIENCE = 20.0
CARRIED = tuple(
    record for record in EVERY_SHAPE if record.key is not None or record.value is not None
)
"""This client sends no record without key and value."""


@pytest.mark.parametrize("codec", CODECS)
async def test_records_of_every_shape_come_back_as_sent(broker: Broker, codec: str) -> None:
    topic = create_topic(broker.address)
    kind = None if codec == "none" else codec
    offsets = await send(broker.address, topic, CARRIED, compression_type=kind)
    found = await read(broker.address, topic, len(CARRIED))
    assert found == list(zip(offsets, CARRIED, strict=True))


@pytest.mark.parametrize("codec", CODECS)
async def test_idempotent_records_come_back_as_sent(broker: Broker, codec: str) -> None:
    topic = create_topic(broker.address)
    kind = None if codec == "none" else codec
    settings = {"compression_type": kind, "enable_idempotence": True}
    first = await send(broker.address, topic, CARRIED, **settings)
    second = await send(broker.address, topic, CARRIED, **settings)
    found = await read(broker.address, topic, 2 * len(CARRIED))
    assert found == list(zip(first + second, CARRIED * 2, strict=True))


async def test_positions_are_sought_by_end_and_by_time(broker: Broker) -> None:
    topic = create_topic(broker.address)
    records = [Record(b"%d" % n, b"v", timestamp=PRESENT + 10 * n) for n in range(10)]
    offsets = await send(broker.address, topic, records)
    place = TopicPartition(topic, 0)
    async with consumer(broker.address) as source:
        source.assign([place])
        await source.seek_to_beginning(place)
        assert (await take(source, 10))[0].offset == offsets[0]
        await source.seek_to_end(place)
        assert await source.position(place) == offsets[-1] + 1
        found = await source.offsets_for_times({place: PRESENT + 35})
        assert found[place].offset == offsets[4]
        assert await source.end_offsets([place]) == {place: offsets[-1] + 1}


async def test_a_position_beyond_the_end_is_out_of_range(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address)
    (offset,) = await send(default_broker.address, topic, [Record(b"k", b"v")])
    async with consumer(default_broker.address, auto_offset_reset="none") as source:
        place = TopicPartition(topic, 0)
        source.assign([place])
        source.seek(place, offset + 5)
        with pytest.raises(OffsetOutOfRangeError):
            await take(source, 1)


async def test_a_waiting_consumer_gets_each_record_as_it_comes(broker: Broker) -> None:
    topic = create_topic(broker.address)
    sink = AIOKafkaProducer(bootstrap_servers=broker.address)
    await sink.start()
    async with consumer(broker.address) as source:
        source.assign([TopicPartition(topic, 0)])
        for number in range(10):
            sent = await sink.send_and_wait(topic, b"%d" % number)
            (found,) = await take(source, 1)
            assert (found.offset, found.value) == (sent.offset, b"%d" % number)
    await sink.stop()


async def test_producing_to_an_unknown_topic_creates_it(default_broker: Broker) -> None:
    topic = topic_name("auto")
    await send(default_broker.address, topic, [Record(b"k", b"v")])
    async with consumer(default_broker.address) as source:
        assert topic in await source.topics()


@asynccontextmanager
async def consumer(bootstrap: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """Yield a consumer, without a group unless one is given."""
    defaults = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}
    source = AIOKafkaConsumer(bootstrap_servers=bootstrap, **{**defaults, **settings})
    await source.start()
    try:
        yield source
    finally:
        await asyncio.wait_for(source.stop(), PATIENCE)


async def send(bootstrap: str, topic: str, records: Sequence[Record], **settings: Any) -> list[int]:
    """Send the records and return their offsets."""
    sink = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=2, **settings)
    await sink.start()
    try:
        sent = [
            await sink.send(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=0,
                timestamp_ms=record.timestamp,
            )
            for record in records
        ]
        return [found.offset for found in await asyncio.wait_for(asyncio.gather(*sent), PATIENCE)]
    finally:
        await asyncio.wait_for(sink.stop(), PATIENCE)


async def read(bootstrap: str, topic: str, count: int) -> list[tuple[int, Record]]:
    """Return offset and record of the first `count` records of partition 0."""
    async with consumer(bootstrap) as source:
        source.assign([TopicPartition(topic, 0)])
        return [
            (
                found.offset,
                Record(found.key, found.value, tuple(found.headers), found.timestamp),
            )
            for found in await take(source, count)
        ]


async def take(source: AIOKafkaConsumer, count: int) -> list[Any]:
    """Return the next `count` records."""
    async with asyncio.timeout(PATIENCE):
        return [await source.getone() for _ in range(count)]
