"""Check log.table on real servers: the newest value of each key."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis
import redis.asyncio

import korvet
from korvet import AsyncKorvet, KeyChanged, Korvet, KorvetError, Record
from korvet.base.errors import ErrorCode
from korvet.library.batches import partition_of
from tests.support.redis_servers import TestServer

TABLE = {"table.enable": "true"}


@pytest.fixture
def log(client: redis.Redis) -> Iterator[Korvet]:
    with Korvet(client) as made:
        yield made


def test_a_table_has_what_was_produced_and_published(log: Korvet, client: redis.Redis) -> None:
    log.create_topic("stock", 3, TABLE)
    stock = log.table("stock")
    log.produce("stock", [Record(b"%d" % n, key=b"k%d" % (n % 9)) for n in range(20)])
    with client.pipeline() as pipe:
        log.publish(pipe, "stock", Record(b"published", key=b"k1"), Record(None, key=b"k2"))
        pipe.execute()
    expected = {b"k%d" % (n % 9): b"%d" % n for n in range(20)} | {b"k1": b"published"}
    del expected[b"k2"]
    assert dict(stock.items()) == expected
    assert stock.count() == 8
    assert (stock.get(b"k1"), stock.get(b"k2"), stock.get(b"other")) == (b"published", None, None)
    own = partition_of(b"k1", 3)
    assert stock.get(b"k1", own) == b"published"
    assert stock.get(b"k1", (own + 1) % 3) is None
    assert client.hget(f"{{korvet:stock:{own}}}:table", "k1") == b"published"
    log.append("stock", (partition_of(b"x", 3) + 1) % 3, [Record(b"elsewhere", key=b"x")])
    assert stock.get(b"x") == b"elsewhere"


def test_a_table_reads_entries_of_xadd_without_a_broker(log: Korvet, client: redis.Redis) -> None:
    log.create_topic("stock", 1, TABLE)
    client.xadd("korvet:stock:0", {"key": "cups", "value": "3"})
    assert log.table("stock").get(b"cups") == b"3"


def test_a_topic_without_a_table_is_refused(log: Korvet) -> None:
    log.create_topic("orders", 1)
    with pytest.raises(KorvetError, match=r"'orders' has no table: .* table.enable=true"):
        log.table("orders")
    with pytest.raises(KorvetError, match=r"table.enable needs storage.format=record"):
        log.create_topic("batches", 1, {**TABLE, "storage.format": "batch"})


def test_a_topic_that_is_created_again_has_an_empty_table(log: Korvet) -> None:
    for _ in range(2):
        log.create_topic("stock", 2, TABLE)
        stock = log.table("stock")
        assert (stock.count(), list(stock.items())) == (0, [])
        log.produce("stock", [Record(b"3", key=b"cups")])
        assert stock.count() == 1
        log.delete_topic("stock")
        with pytest.raises(KorvetError):
            stock.get(b"cups")


def test_deleted_records_stay_in_the_table(log: Korvet) -> None:
    log.create_topic("stock", 1, {**TABLE, "offset.mode": "dense"})
    log.produce("stock", [Record(b"3", key=b"cups")])
    log.delete_records("stock", 0, before=1)
    assert list(log.records("stock", 0)) == []
    assert log.table("stock").get(b"cups") == b"3"


def test_the_asyncio_face_has_the_same_calls(redis_server: TestServer) -> None:
    async def work() -> tuple[bytes | None, int, list[tuple[bytes, bytes]]]:
        client = redis.asyncio.Redis.from_url(redis_server.url)
        async with AsyncKorvet(client) as log, client:
            await log.create_topic("stock", 1, TABLE)
            await log.produce("stock", [Record(b"3", key=b"cups")])
            stock = await log.table("stock")
            items = [pair async for pair in stock.items()]
            return await stock.get(b"cups"), await stock.count(), items

    assert asyncio.run(work()) == (b"3", 1, [(b"cups", b"3")])
    names = [name for name in dir(korvet.AsyncTable) if not name.startswith("_")]
    assert {"get", "items", "count"} <= set(names)


OFFSETS = {**TABLE, "table.offsets.enable": "true", "offset.mode": "dense"}


def changed(found: pytest.ExceptionInfo[KeyChanged]) -> tuple[ErrorCode, int]:
    return found.value.error, found.value.offset


def test_a_record_expects_the_offset_of_its_keys_newest_record(
    log: Korvet, client: redis.Redis
) -> None:
    log.create_topic("stock", 1, OFFSETS)
    stock = log.table("stock")
    assert stock.get_with_offset(b"cups", 0) == (None, -1)
    log.append("stock", 0, [Record(b"3", b"cups", expected_offset=-1)])
    assert stock.get_with_offset(b"cups", 0) == (b"3", 0)
    with pytest.raises(KeyChanged, match="newest record of a key has the offset 0") as found:
        log.produce("stock", [Record(b"x"), Record(b"2", b"cups", expected_offset=-1)])
    assert changed(found) == (ErrorCode.INVALID_UPDATE_VERSION, 0)
    client.xadd("korvet:stock:0", {"key": "cups", "value": "7"})
    with client.pipeline() as pipe:
        stale = log.publish(pipe, "stock", Record(b"2", b"cups", expected_offset=0))
        pipe.incr("own")
        pipe.execute()
    with pytest.raises(KeyChanged) as found:
        _ = stale.offset
    assert changed(found) == (ErrorCode.INVALID_UPDATE_VERSION, 1)
    with client.pipeline() as pipe:
        late = Record(b"2", b"cups", expected_offset=-1)
        strict = log.publish(pipe, "stock", late, on_refused="error")
        unknown = log.publish(
            pipe, "stock", Record(b"2", b"forks", expected_offset=7), on_refused="error"
        )
        good = log.publish(pipe, "stock", Record(b"6", b"cups", expected_offset=1))
        with pytest.raises(redis.ResponseError, match=r"INVALID_UPDATE_VERSION korvet:stock:0 1$"):
            pipe.execute()
    for receipt, offset in ((strict, 1), (unknown, -1)):
        with pytest.raises(KeyChanged) as found:
            _ = receipt.offset
        assert found.value.offset == offset
    assert (good.offset, stock.get_with_offset(b"cups", 0)) == (2, (b"6", 2))


def test_what_knows_no_offsets_takes_no_record_that_expects_one(
    log: Korvet, client: redis.Redis
) -> None:
    log.create_topic("stock", 1, TABLE)
    record = Record(b"3", b"cups", expected_offset=-1)
    with pytest.raises(KorvetError, match=r"set its configs table.enable and table.offsets"):
        log.append("stock", 0, [record])
    with pytest.raises(KorvetError, match=r"table.offsets.enable needs table.enable=true"):
        log.create_topic("orders", 1, {"table.offsets.enable": "true"})
    assert log.table("stock").get_with_offset(b"cups", 0) == (None, -1)


def test_concurrent_steps_count_each_once(log: Korvet, redis_server: TestServer) -> None:
    log.create_topic("stock", 1, OFFSETS)

    async def count(times: int) -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as own, AsyncKorvet(own) as mine:
            stock = await mine.table("stock")
            while times:
                value, offset = await stock.get_with_offset(b"cups", 0)
                record = Record(b"%d" % (int(value or 0) + 1), b"cups", expected_offset=offset)
                with suppress(KeyChanged):
                    await mine.append("stock", 0, [record])
                    times -= 1

    async def work() -> None:
        await asyncio.gather(*(count(10) for _ in range(4)))

    asyncio.run(work())
    assert log.table("stock").get_with_offset(b"cups", 0) == (b"40", 39)
