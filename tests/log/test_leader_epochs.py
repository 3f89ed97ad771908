"""Check leader epochs: what clients and the log report if Redis lost its last writes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.library.async_korvet import AsyncKorvet
from korvet.log.leader_epochs import begin_call
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch, markers_in, packed, produce, rows, rows_in
from tests.support.raw_client import until
from tests.support.redis_servers import OwnRedis
from tests.transactions.test_coordinator import opened

modes = pytest.mark.parametrize("mode", ["dense", "time"])


@asynccontextmanager
async def joined(
    redis: OwnRedis, node_id: int = 1, *, is_clean: bool = False, sets: Sequence[str] = ()
) -> AsyncIterator[Broker]:
    """Yield a broker that has joined, as one that serves has."""
    options = {"redis": redis.url, "node-id": str(node_id), "advertise": "me:9092"}
    async with connected(load(options, sets=sets, environ={})) as node:
        await node.epochs.start(is_clean=is_clean)
        await node.registration.heartbeat()
        await node.topics.refresh()
        yield Broker(node)


async def end_of(broker: Broker, epoch: int, current: int = -1) -> tuple[int, int]:
    """Return what OffsetForLeaderEpoch says of an epoch."""
    place = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[place])]
    )
    row = (await broker.ask(request)).topics[0].partitions[0]
    return E(row.error_code), row.end_offset


async def end_of_log(broker: Broker, current: int) -> tuple[int, int, int]:
    """Return what ListOffsets says of the log's end: error, leader epoch, offset."""
    place = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=current)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[place])]
    )
    row = (await broker.ask(request)).topics[0].partitions[0]
    return row.error_code, row.leader_epoch, row.offset


async def leader_epoch(broker: Broker) -> int:
    """Return the leader epoch that Metadata says."""
    answer = await broker.ask(MetadataRequest(topics=None))
    return int(answer.topics[0].partitions[0].leader_epoch)


def values_in(found: Any) -> list[bytes]:
    """Return the values of the records in a Fetch response, without markers."""
    markers = markers_in(found.records)
    return [row[3] for row in rows_in(found.records) if row[0] not in markers]


async def appended(broker: Broker, *values: bytes, **how: Any) -> int:
    """Append a batch and return its first offset."""
    found = await produce(broker, packed(rows(*values), 13, **how))
    assert found.error_code == E.NONE
    return int(found.base_offset)


async def restarted(redis: OwnRedis, data: Path, *brokers: Broker) -> None:
    """Start Redis with an earlier copy of its data, and wait until the brokers are connected."""
    stores = [broker.services.store for broker in brokers]
    histories = [store.histories() for store in stores]
    redis.start_with(data)
    for store, before in zip(stores, histories, strict=True):
        while store.histories() == before or not store.connected:
            with suppress(StoreUnavailable):
                await store.command("PING")
            await store.ready()


@modes
async def test_what_redis_lost_is_noticed_at_its_offset(
    redis_on_disk: OwnRedis, tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode=mode)
        ended = await appended(broker, b"a", b"b", b"c") + 3
        redis_on_disk.copy(tmp_path / "data")
        position = await appended(broker, b"lost", b"lost", b"lost") + 3
        before = await leader_epoch(broker)
        assert await end_of(broker, before) == (E.NONE, position)
        await restarted(redis_on_disk, tmp_path / "data", broker)

        now = await leader_epoch(broker)
        assert now > before
        assert await end_of(broker, before) == (E.NONE, ended)
        assert (await fetch(broker, position, epoch=before)).error_code == E.FENCED_LEADER_EPOCH
        assert (await fetch(broker, position, epoch=now)).error_code == E.OFFSET_OUT_OF_RANGE
        diverging = (
            await fetch(broker, position, epoch=now, last=before, wait=60_000)
        ).diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (before, ended)
        at_end = await fetch(broker, ended, epoch=now, last=before)
        assert (at_end.error_code, at_end.diverging_epoch.epoch) == (E.NONE, -1)
        unaware = (await fetch(broker, position)).error_code
        assert unaware == (E.NONE if mode == "time" else E.OFFSET_OUT_OF_RANGE)
        new = await appended(broker, b"new")
        assert new > position
        assert values_in(await fetch(broker, ended, epoch=now)) == [b"new"]
        assert await end_of(broker, now, current=now) == (E.NONE, new + 1)
    [record] = [each for each in caplog.records if "records lost" in each.getMessage()]
    assert (record.fields["first"], record.fields["end"]) == (ended, position)
    assert sum(broker.services.metrics.lost_records.values.values()) == position - ended


@modes
async def test_a_restart_that_lost_nothing_disturbs_no_reader(
    redis_on_disk: OwnRedis, tmp_path: Path, mode: str
) -> None:
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode=mode)
        end = await appended(broker, b"a", b"b") + 2
        before = await leader_epoch(broker)
        redis_on_disk.copy(tmp_path / "data")
        await restarted(redis_on_disk, tmp_path / "data", broker)
        now = await leader_epoch(broker)
        assert await end_of(broker, before, current=now) == (E.NONE, end)
        assert (await fetch(broker, end, epoch=now)).error_code == E.NONE
        new = await appended(broker, b"c")
        assert new == end or mode == "time"
        found = await fetch(broker, end, epoch=now)
        assert values_in(found) == [b"c"]


async def test_a_producer_whose_batches_were_lost_gets_an_error(
    redis_on_disk: OwnRedis, tmp_path: Path
) -> None:
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode="dense")
        await appended(broker, b"a", producer=(5, 0, 0))
        redis_on_disk.copy(tmp_path / "data")
        await appended(broker, b"b", producer=(5, 0, 1))
        await appended(broker, b"x", producer=(6, 0, 0))
        await restarted(redis_on_disk, tmp_path / "data", broker)
        for producer_id, sequence in ((5, 2), (6, 1)):
            data = packed(rows(b"c"), 13, producer=(producer_id, 0, sequence))
            assert (await produce(broker, data)).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        await appended(broker, b"b again", producer=(5, 0, 1))


async def test_the_first_broker_raises_the_epoch_and_the_others_follow(
    redis_on_disk: OwnRedis, tmp_path: Path
) -> None:
    async with joined(redis_on_disk) as one, joined(redis_on_disk, 2) as other:
        await one.create("t", offset_mode="dense")
        await other.services.topics.refresh()
        await appended(one, b"a")
        before = await leader_epoch(one)
        redis_on_disk.copy(tmp_path / "data")
        await appended(one, b"b")
        await appended(other, b"c")
        await restarted(redis_on_disk, tmp_path / "data", one, other)
        assert await leader_epoch(one) == await leader_epoch(other) > before
        assert await end_of(other, before) == (E.NONE, 1)
        assert await appended(one, b"d") == 4, "above what either broker knew of"


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
async def test_no_broker_appends_before_those_that_may_know_of_lost_records_have_reported(
    redis_on_disk: OwnRedis, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_late: bool
) -> None:
    async with joined(redis_on_disk) as one, joined(redis_on_disk, 2) as other:
        await one.create("t", offset_mode="dense")
        await other.services.topics.refresh()
        await opened(other, "x", "t", 0)
        redis_on_disk.copy(tmp_path / "data")
        await appended(other, b"b", b"c", b"d", b"e")
        connects, store = asyncio.Event(), other.services.store
        accept = store.accept_server
        assert accept is not None

        async def accept_later(run: str) -> None:
            await connects.wait()
            await accept(run)

        store.accept_server = accept_later
        redis_on_disk.start_with(tmp_path / "data")
        with redis_on_disk.client() as client:
            state = partial(client.hmget, "korvet:cluster", "witnesses", "epoch")

            def has_reported() -> bool:
                witnesses, epoch = state()
                return bool(epoch) and b"1/0 " + epoch in witnesses

            assert await asyncio.to_thread(until, has_reported)
            assert not one.services.store.connected
            if is_late:
                client.hset("korvet:cluster", "witnesses_until", 0)
        if is_late:
            await one.services.store.ready()
            assert await appended(one, b"f") == 1, "no process that is there knows more"
        connects.set()
        await asyncio.gather(one.services.store.ready(), store.ready())
        assert await appended(one, b"g") == 7, "above the marker that aborts"
        assert (await one.services.transactions.describe("x")).state == b"CompleteAbort"
    [record] = [each for each in caplog.records if "records lost" in each.getMessage()]
    assert (record.fields["first"], record.fields["end"]) == (1, 5)


async def test_a_broker_that_starts_raises_it_unless_redis_lost_nothing(
    redis_on_disk: OwnRedis, tmp_path: Path
) -> None:
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode="dense")
        await appended(broker, b"a")
        before = await leader_epoch(broker)
    redis_on_disk.copy(tmp_path / "data")
    for is_clean in (True, False):
        redis_on_disk.start_with(tmp_path / "data")
        async with joined(redis_on_disk, is_clean=is_clean) as broker:
            now = await leader_epoch(broker)
            assert (now == before) is is_clean
            assert await end_of(broker, before) == (E.NONE, 1)
    async with joined(redis_on_disk) as broker:
        assert await leader_epoch(broker) == now


async def test_a_former_master_that_is_promoted_again_raises_it(redis_on_disk: OwnRedis) -> None:
    """Its run id is the earlier one, and it may lack what the master in between had."""
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode="dense")
        before, store = await leader_epoch(broker), broker.services.store
        with redis_on_disk.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", 1)
            client.execute_command("REPLICAOF", "NO", "ONE")
        store.reconnect("the test wants it")
        await store.ready()
        assert await leader_epoch(broker) > before


async def test_a_topic_of_a_redis_that_was_emptied_is_not_read_on(
    redis_on_disk: OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode="dense")
        await appended(broker, b"a", b"b")
        before = await leader_epoch(broker)
        with redis_on_disk.client() as client:
            client.flushall()
        await broker.services.epochs.renew()
        await broker.create("t", offset_mode="dense")
        await appended(broker, b"c", b"d", b"e")
        assert await end_of(broker, before, current=await leader_epoch(broker)) == (E.NONE, 0)
    assert "topic lost" in caplog.text


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_a_client_compares_its_position_before_it_reads_a_log_of_a_newer_epoch(
    redis_on_disk: OwnRedis, form: str
) -> None:
    """The broker learns the epoch from the log, and Metadata has it then."""
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode="time", storage_format=form)
        position = await appended(broker, b"a") + 1
        with redis_on_disk.client() as client:
            before = int(client.hget("korvet:cluster", "epoch") or 0) - 100
            client.flushall()
        broker.services.epochs.epoch = before
        broker.services.topics.invalidate()
        await broker.create("t", offset_mode="time", storage_format=form)
        new = await appended(broker, b"b")
        assert (await fetch(broker, position, epoch=before)).error_code == E.FENCED_LEADER_EPOCH
        now = await leader_epoch(broker)
        assert now > before
        assert await end_of(broker, before, current=now) == (E.NONE, 0)
        found = await fetch(broker, new, epoch=now)
        assert int.from_bytes(bytes(found.records)[12:16]) == now


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_a_reader_sees_no_loss_if_a_broker_appends_while_another_begins_the_epoch(
    redis_on_disk: OwnRedis, form: str
) -> None:
    """The records appended to a master that was not restarted belong to the new epoch."""
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode="dense", storage_format=form)
        position, before = await appended(broker, b"a") + 1, await leader_epoch(broker)
        call = broker.services.keys.broker_raise_epoch(
            ["another"], begun=-1, is_clean=0, witness="", witnesses=b""
        )
        now = (await broker.services.store.run(call)).epoch
        topic = await broker.services.topics.get("t")
        assert topic is not None
        await broker.services.store.run(begin_call(topic, 0, now, -1))
        await appended(broker, b"b")
        assert await end_of_log(broker, -1) == (E.NONE, now, position + 1)
        if form == "record":
            error = (await end_of_log(broker, before))[0]
        else:
            error = (await fetch(broker, position, epoch=before)).error_code
        assert error == E.FENCED_LEADER_EPOCH
        assert await leader_epoch(broker) == now
        assert await end_of(broker, before, current=now) == (E.NONE, position)
        assert values_in(await fetch(broker, position, epoch=now, last=before)) == [b"b"]


async def test_an_empty_redis_is_noticed_if_no_broker_knows_the_earlier_one(
    redis_on_disk: OwnRedis,
) -> None:
    with redis_on_disk.client() as client:
        client.hset("korvet:cluster", "epoch", 5)
    async with joined(redis_on_disk, is_clean=True) as broker:
        await broker.create("t", offset_mode="time")
        before, position = await leader_epoch(broker), await appended(broker, b"a") + 1
    with redis_on_disk.client() as client:
        client.flushall()
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode="time")
        now = await leader_epoch(broker)
        assert await appended(broker, b"b") > position
        assert now > before
        assert await end_of(broker, before, current=now) == (E.NONE, 0)


@modes
async def test_a_log_whose_records_were_all_lost_is_read_from_its_start(
    redis_on_disk: OwnRedis, tmp_path: Path, mode: str
) -> None:
    """Its first entry is the marker, at the offset that is left out."""
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode=mode)
        redis_on_disk.copy(tmp_path / "data")
        await appended(broker, b"lost", b"lost")
        await restarted(redis_on_disk, tmp_path / "data", broker)
        await appended(broker, b"new")
        topic = await broker.services.topics.get("t")
        assert topic is not None
        first = (await broker.services.store.run(topic.partition(0).list_offsets())).first
        now = await leader_epoch(broker)
        assert values_in(await fetch(broker, first, epoch=now)) == [b"new"]


async def test_records_of_an_earlier_server_only_count_as_lost(
    redis_on_disk: OwnRedis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another broker has raised the epoch while this one appended to the same server."""
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode="dense")
        await appended(broker, b"a")
        before, keys = await leader_epoch(broker), broker.services.keys
        call = keys.broker_raise_epoch(["another"], begun=-1, is_clean=0, witness="", witnesses=b"")
        now = (await broker.services.store.run(call)).epoch
        assert now > before
        topic = await broker.services.topics.get("t")
        assert topic is not None
        await broker.services.store.run(begin_call(topic, 0, now, -1))
        await appended(broker, b"b")
        await broker.services.epochs.renew()
        assert await leader_epoch(broker) == now
        assert await end_of(broker, before) == (E.NONE, 1)
    assert "records lost" not in caplog.text


@pytest.mark.parametrize("remembers", [True, False], ids=["the broker", "no broker"])
async def test_a_transaction_that_lost_records_is_aborted(
    redis_on_disk: OwnRedis, tmp_path: Path, remembers: bool
) -> None:
    """Its producer may end it without a further batch: it must not commit what is left."""
    async with AsyncExitStack() as first:
        broker = await first.enter_async_context(joined(redis_on_disk))
        await broker.create("t", 2, offset_mode="dense")
        other = await opened(broker, "other", "t", 1)
        who = await opened(broker, "x", "t", 0)
        redis_on_disk.copy(tmp_path / "data")
        await appended(broker, b"lost")
        if remembers:
            await restarted(redis_on_disk, tmp_path / "data", broker)
        else:
            await first.aclose()
            redis_on_disk.start_with(tmp_path / "data")
            broker = await first.enter_async_context(joined(redis_on_disk))
        transactions = broker.services.transactions

        async def commit(transactional_id: str, who: tuple[int, int]) -> int:
            reply = await transactions.end(
                transactional_id,
                producer_id=who[0],
                producer_epoch=who[1],
                committed=True,
                bump=False,
            )
            return reply.error

        assert (await transactions.describe("x")).state == b"CompleteAbort"
        assert await commit("x", who) in (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)
        assert (await commit("other", other) == E.NONE) is remembers


async def test_a_transaction_of_a_redis_that_syncs_each_write_stays_open(
    redis_on_disk: OwnRedis,
) -> None:
    with redis_on_disk.client() as client:
        client.config_set("appendfsync", "always")
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode="dense")
        await opened(broker, "x", "t", 0)
        call = broker.services.keys.broker_raise_epoch(
            ["new"], begun=-1, is_clean=0, witness="", witnesses=b""
        )
        now = (await broker.services.store.run(call)).epoch
    async with joined(redis_on_disk) as broker:
        assert await leader_epoch(broker) == now
        assert (await broker.services.transactions.describe("x")).state == b"Ongoing"


async def test_a_redis_whose_settings_are_not_readable_counts_as_one_that_may_lose(
    redis_on_disk: OwnRedis,
) -> None:
    async with joined(redis_on_disk) as broker:
        await broker.create("t", offset_mode="dense")
        await opened(broker, "x", "t", 0)
        call = broker.services.keys.broker_raise_epoch(
            ["new"], begun=-1, is_clean=0, witness="", witnesses=b""
        )
        await broker.services.store.run(call)
    with redis_on_disk.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-config")
    async with joined(redis_on_disk) as broker:
        assert (await broker.services.transactions.describe("x")).state == b"CompleteAbort"


@modes
async def test_no_offset_of_a_segment_that_redis_forgot_is_given_again(
    redis_on_disk: OwnRedis, tmp_path: Path, mode: str
) -> None:
    url = f"file://{tmp_path}/s"
    settings = {"remote.log.storage.system.enable": "true", "remote.storage.url": url}
    sets = [f"{name}={value}" for name, value in settings.items()]
    async with (
        joined(redis_on_disk, sets=sets) as broker,
        await AsyncKorvet.connect(redis_on_disk.url, settings=settings) as log,
    ):
        await broker.services.registration.join()
        configs = {"remote_storage_enable": "true", "segment_bytes": "1000", "retention_ms": "-1"}
        await broker.create("t", offset_mode=mode, local_retention_bytes="1", **configs)
        topic = await broker.services.topics.get("t")
        manager = broker.services.tiered.manager("one")
        assert topic is not None and manager is not None

        async def append_and_copy(value: bytes) -> int:
            """Append three batches, and copy them to segments. Returns the last offset."""
            *_, last = [await appended(broker, value * 100_000) for _ in range(3)]
            await manager.move(topic, 0)
            return last

        async def read() -> list[bytes]:
            """Return the first byte of each record."""
            at, found = 0, []
            while True:
                answer = await fetch(broker, at, epoch=broker.services.epochs.epoch)
                assert answer.error_code == E.NONE
                if at >= answer.high_watermark:
                    return found
                found += [value[:1] for value in values_in(answer)]
                at = rows_in(answer.records)[-1][0] + 1

        async def read_by_library() -> list[bytes]:
            while True:  # Its connection may have ended with the earlier server.
                with suppress(StoreError):
                    return [
                        record.value[:1] async for record in log.records("t", 0) if record.value
                    ]
                await log.store.ready()

        await append_and_copy(b"a")
        redis_on_disk.copy(tmp_path / "data")
        position = await append_and_copy(b"b") + 1
        assert await read() == await read_by_library() == [b"a"] * 3 + [b"b"] * 3
        bounds = await broker.services.store.run(topic.partition(0).list_offsets())
        assert bounds.tiered == position
        await restarted(redis_on_disk, tmp_path / "data", broker)
        assert await read() == [b"a"] * 3
        assert await append_and_copy(b"c") > position
        assert await read() == await read_by_library() == [b"a"] * 3 + [b"c"] * 3
