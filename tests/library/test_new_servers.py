"""Check that a process that is no broker begins a leader epoch before it uses a new server."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import redis.asyncio

from korvet.library.async_korvet import AsyncKorvet
from korvet.library.korvet import Korvet
from korvet.library.values import Record
from korvet.log.leader_epochs import EpochRow, end_of, parse_rows
from korvet.scripts.keys import Keys
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection
from tests.support.redis_servers import OwnRedis

Produce = Callable[[str], None]
RECORDS = [Record(b"v"), Record(b"v")]


def with_client(url: str) -> None:
    with redis.Redis.from_url(url) as client, Korvet(client) as log:
        log.produce("t", RECORDS)


def with_url(url: str) -> None:
    with Korvet.connect(url) as log:
        log.produce("t", RECORDS)


def with_asyncio_client(url: str) -> None:
    async def produce() -> None:
        async with redis.asyncio.Redis.from_url(url) as client, AsyncKorvet(client) as log:
            await log.produce("t", RECORDS)

    asyncio.run(produce())


def with_asyncio_url(url: str) -> None:
    async def produce() -> None:
        async with await AsyncKorvet.connect(url) as log:
            await log.produce("t", RECORDS)

    asyncio.run(produce())


def with_spark(url: str) -> None:
    with MetadataClient(Connection(redis=url, namespace="korvet")) as metadata:
        metadata.store.command("PING")
    with_url(url)


def rows_of(server: OwnRedis) -> list[EpochRow]:
    with server.client() as client:
        state = client.hget(Keys().partition("t", 0).log, "epochs")
        assert isinstance(state, bytes)
        return parse_rows(state)


WAYS = [with_client, with_url, with_asyncio_client, with_asyncio_url, with_spark]


@pytest.mark.parametrize("produce", WAYS, ids=lambda each: each.__name__)
def test_the_epoch_is_begun_where_the_log_ended(
    redis_on_disk: OwnRedis, tmp_path: Path, produce: Produce
) -> None:
    with Korvet.connect(redis_on_disk.url) as log:
        log.create_topic("t", partitions=1, configs={"offset.mode": "dense"})
        log.produce("t", RECORDS)
    redis_on_disk.copy(tmp_path / "data")
    produce(redis_on_disk.url)
    redis_on_disk.start_with(tmp_path / "data")
    produce(redis_on_disk.url)
    rows = rows_of(redis_on_disk)
    assert end_of(rows[0].epoch, rows, 4) == 2
    with redis_on_disk.client() as client:
        assert client.hget("korvet:cluster", "epoch_begun") == b"0", "transactions are left open"


def produced(log: Korvet, _: redis.Redis) -> None:
    log.produce("t", RECORDS)


def published(log: Korvet, client: redis.Redis) -> None:
    with client.pipeline() as pipe:
        log.publish(pipe, "t", *RECORDS)
        pipe.execute()


@pytest.mark.parametrize("produce", [produced, published])
def test_a_connection_that_is_made_again_begins_it_too(
    redis_on_disk: OwnRedis, tmp_path: Path, produce: Callable[[Korvet, redis.Redis], None]
) -> None:
    with Korvet.connect(redis_on_disk.url) as log, redis_on_disk.client() as client:
        log.create_topic("t", partitions=1, configs={"offset.mode": "dense"})
        redis_on_disk.copy(tmp_path / "data")
        produce(log, client)
        redis_on_disk.start_with(tmp_path / "data")
        produce(log, client)
    rows = rows_of(redis_on_disk)
    assert end_of(rows[0].epoch, rows, 2) == 0


def test_a_step_of_asyncio_begins_it_too(redis_on_disk: OwnRedis, tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            redis.asyncio.Redis.from_url(redis_on_disk.url) as client,
            AsyncKorvet(client) as log,
        ):
            for number in range(2):
                async with client.pipeline() as pipe:
                    await log.publish(pipe, "t", *RECORDS)
                    await pipe.execute()
                if number == 0:
                    redis_on_disk.start_with(tmp_path / "data")
                    await client.connection_pool.disconnect()

    with Korvet.connect(redis_on_disk.url) as log:
        log.create_topic("t", partitions=1, configs={"offset.mode": "dense"})
    redis_on_disk.copy(tmp_path / "data")
    asyncio.run(work())
    rows = rows_of(redis_on_disk)
    assert end_of(rows[0].epoch, rows, 2) == 0
