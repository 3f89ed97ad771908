"""Check tiered storage in one broker without a socket: copy, trim, fetch, offsets, removal."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import time
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.log.layouts import records_in
from korvet.log.read_result import ReadRequest
from korvet.remote_log import copier, local_files
from korvet.remote_log.chunk_cache import ChunkCache
from korvet.remote_log.manager import RemoteLogManager
from korvet.remote_log.reader import RemoteLogReader
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.topics.lifecycle import delete_topic
from korvet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.records import Record, crc_function
from korvet.wire.segments import footer_of, read_segment
from tests.support.connected_broker import Broker
from tests.support.exchanges import SHAPES, fetch, markers_in, packed, produce, rows_in
from tests.support.redis_servers import TestServer

_namespaces = itertools.count()
BATCHES, PER_BATCH = 12, 10
SEGMENT = 250_000
"""Bytes of a segment: four batches."""


class Tier:
    """A broker with a remote store in a directory, and a topic of twelve batches."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.sent: list[tuple[int, bytes | None]] = []

    def manager(self, holder: str = "one") -> RemoteLogManager:
        found = self.broker.services.tiered.manager(holder)
        assert found is not None
        return found

    def use_cache(self) -> SegmentStore:
        """Read blocks through the cache, as of an object store; return the store."""
        services = self.broker.services
        assert services.tiered.segments is not None
        assert isinstance(services.log_reader.remote, RemoteLogReader)
        services.log_reader.remote.source = ChunkCache(services.tiered.segments, 64 << 20)
        return services.tiered.segments

    async def fill(self, form: str = "batch", mode: str = "dense", **configs: str | None) -> None:
        """Create the topic and produce; nothing is copied yet. A config of None is not given."""
        wanted = {
            "storage_format": form,
            "offset_mode": mode,
            "remote_storage_enable": "true",
            "segment_bytes": str(SEGMENT),
            "retention_ms": "-1",
            "local_retention_bytes": "1",
            "file_delete_delay_ms": "0",
        }
        given = {key: value for key, value in {**wanted, **configs}.items() if value is not None}
        await self.broker.create("t", partitions=1, **given)
        for at in range(BATCHES):
            made: list[Record] = [
                (n, 1000 + at * PER_BATCH + n, b"k", b"%04d" % (at * PER_BATCH + n) * 1700, [])
                for n in range(PER_BATCH)
            ]
            answer = await produce(self.broker, packed(made, 13))
            assert answer.error_code == 0
            self.sent += [(row[1], row[3] or b"") for row in made]

    async def move(self, holder: str = "one") -> None:
        topic = await self.broker.services.topics.get("t")
        assert topic is not None
        await self.manager(holder).move(topic, 0)

    async def read(
        self, offset: int = 0, version: int = 18, **how: Any
    ) -> list[tuple[int, bytes | None]]:
        """Read from an offset to the end as a consumer; offsets must rise."""
        found: list[tuple[int, bytes | None]] = []
        while True:
            answer = await fetch(self.broker, offset, version=version, size=100_000, **how)
            assert answer.error_code == 0
            rows = [row for row in rows_in(answer.records, version) if row[0] >= offset]
            if not rows:
                return found
            hidden = markers_in(answer.records) if version >= 4 else set()
            found += [(row[1], row[3]) for row in rows if row[0] not in hidden]
            assert [row[0] for row in rows] == sorted({row[0] for row in rows})
            offset = rows[-1][0] + 1

    async def offset(self, timestamp: int, version: int = 11, timeout_ms: int = 1000) -> Any:
        row = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topics = [ListOffsetsTopic(name="t", partitions=[row])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=timeout_ms)
        return (await self.broker.ask(request, version)).topics[0].partitions[0]

    async def delete_below(self, offset: int) -> Any:
        row = DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsTopic(name="t", partitions=[row])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
        return (await self.broker.ask(request)).topics[0].partitions[0]

    async def in_redis(self) -> int:
        keys = self.broker.services.keys
        return int(await self.broker.services.store.command("XLEN", keys.partition("t", 0).stream))

    def objects(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
async def tier(valkey_server: TestServer, tmp_path: Path) -> AsyncIterator[Tier]:
    options = {"redis": valkey_server.url, "namespace": f"tier{next(_namespaces)}", "node-id": "7"}
    sets = [
        "remote.log.storage.system.enable=true",
        f"remote.storage.url=file://{tmp_path}",
        "remote.fetch.max.wait.ms=10000",
    ]
    config = load({**options, "advertise": "me:9092"}, sets=sets, environ={})
    async with connected(config) as services:
        await services.registration.heartbeat()
        await services.topics.refresh()
        yield Tier(Broker(services), tmp_path)


@pytest.mark.parametrize(("form", "mode"), SHAPES)
async def test_records_are_read_from_segments_and_redis_as_one_log(
    tier: Tier, form: str, mode: str
) -> None:
    await tier.fill(form, mode)
    before = (await tier.offset(-1)).offset
    first = (await tier.offset(-2)).offset
    await tier.move()
    assert len(tier.objects()) >= 2
    local = (await tier.offset(-4)).offset
    assert first < local <= before == (await tier.offset(-1)).offset
    assert (await tier.offset(-5)).offset + 1 == (await tier.offset(-6)).offset >= local
    begin = (await tier.offset(-2)).offset
    for version in (18, 4, 2):
        assert await tier.read(begin, version) == tier.sent
    assert await tier.read(begin, committed=True) == tier.sent
    for path in tier.objects():
        read_segment(path.read_bytes())


@pytest.mark.parametrize(("form", "mode"), SHAPES)
async def test_timestamps_are_found_across_the_border(tier: Tier, form: str, mode: str) -> None:
    await tier.fill(form, mode)
    offsets = [(await tier.offset(1000 + n)).offset for n in range(0, 120, 7)]
    await tier.move()
    assert [(await tier.offset(1000 + n)).offset for n in range(0, 120, 7)] == offsets
    assert (await tier.offset(1120)).offset == -1
    assert (await tier.offset(-3)).timestamp == 1119


async def test_entries_are_those_of_the_layout(tier: Tier) -> None:
    await tier.fill("record", "time", compression_type="gzip")
    services = tier.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    whole = await services.log_reader.read(ReadRequest(topic, 0, 0, 1 << 20))
    hot = records_in(topic, whole.entries)
    await tier.move()
    cold = await services.log_reader.read(ReadRequest(topic, 0, 0, 1 << 20))
    assert cold.entries and records_in(topic, cold.entries) == hot[: len(cold.entries)]


async def test_a_store_that_is_away_is_a_retriable_error(tier: Tier) -> None:
    await tier.fill()
    await tier.move()
    elsewhere = tier.folder.with_name("elsewhere")
    tier.folder.rename(elsewhere)
    answer = await fetch(tier.broker, 0)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await tier.offset(1000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    local = (await tier.offset(-4)).offset
    assert (await fetch(tier.broker, local)).error_code == 0
    elsewhere.rename(tier.folder)
    assert await tier.read() == tier.sent


async def test_concurrent_fetches_share_a_read(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    await tier.fill()
    await tier.move()
    segments = tier.use_cache()
    get, reads = segments.get, list[tuple[str, int, int]]()

    async def noted(name: str, start: int, end: int) -> memoryview:
        reads.append((name, start, end))
        await asyncio.sleep(0)
        return await get(name, start, end)

    monkeypatch.setattr(segments, "get", noted)
    answers = await asyncio.gather(*(fetch(tier.broker, 0) for _ in range(5)))
    assert all(rows_in(answer.records) for answer in answers)
    blocks = [read for read in reads if read[1] == 0]
    assert len(blocks) == 1
    await fetch(tier.broker, 5)
    assert [read for read in reads if read[1] == 0] == blocks


async def test_a_slow_store_delays_no_fetch_and_the_next_one_has_the_records(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tier.fill()
    await tier.move()
    services, segments = tier.broker.services, tier.use_cache()
    get, arrived, count = segments.get, asyncio.Event(), 0

    async def slow(name: str, start: int, end: int) -> memoryview:
        nonlocal count
        count += 1
        if start == 0:
            await arrived.wait()
        return await get(name, start, end)

    monkeypatch.setattr(segments, "get", slow)
    monkeypatch.setattr(services.log_reader.remote, "max_wait_s", lambda: 0.05)
    answer = await fetch(tier.broker, 0)
    assert answer.error_code == 0 and not rows_in(answer.records)
    assert answer.high_watermark == 120
    arrived.set()
    monkeypatch.setattr(services.log_reader.remote, "max_wait_s", lambda: 10)
    asked = count
    assert rows_in((await fetch(tier.broker, 0)).records)
    assert count == asked, "the read of the first fetch is used"


async def test_a_slow_disk_delays_no_fetch_either(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tier.fill()
    await tier.move()
    assert rows_in((await fetch(tier.broker, 0)).records)  # the footer is known
    services, arrived, read = tier.broker.services, threading.Event(), local_files._read

    def slow(path: str, data: memoryview, start: int) -> int:
        arrived.wait()
        return read(path, data, start)

    with monkeypatch.context() as patch:
        patch.setattr(local_files, "read_page_cache", lambda *_: False)
        patch.setattr(local_files, "_read", slow)
        patch.setattr(services.log_reader.remote, "max_wait_s", lambda: 0.05)
        answer = await fetch(tier.broker, 0)
        assert answer.error_code == 0 and not rows_in(answer.records)
        arrived.set()
    assert await tier.read() == tier.sent


@pytest.mark.parametrize("version", [9, 11])
async def test_a_lookup_by_time_ends_if_the_store_is_slow(
    tier: Tier, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tier.fill()
    await tier.move()
    segments = tier.use_cache()

    async def hang(name: str, start: int, end: int) -> memoryview:
        await asyncio.sleep(3600)
        raise AssertionError(name)

    config = tier.broker.services.dynamic_config
    with monkeypatch.context() as patch:
        patch.setattr(segments, "get", hang)
        limited = config.settings.with_dynamic({"remote.list.offsets.request.timeout.ms": "50"})
        patch.setattr(config, "settings", limited)
        for moment in (1010, -3):
            answer = await tier.offset(moment, version, timeout_ms=50)
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert (await tier.offset(-1, version, timeout_ms=50)).offset == 120
    assert (await tier.offset(1010, version)).offset == 10


def flip(at: int) -> Callable[[list[Path]], None]:
    def change(objects: list[Path]) -> None:
        data = bytearray(objects[0].read_bytes())
        data[at] ^= 1
        objects[0].write_bytes(data)

    return change


def forge(objects: list[Path], length: int) -> None:
    """Give the first batch another length and one offset, and the segment right checksums."""
    segment, batches = read_segment(objects[0].read_bytes())
    data = bytearray(batches)
    data[8:12] = length.to_bytes(4, "big", signed=True)
    data[23:27] = bytes(4)
    rows = [
        row._replace(crc=crc_function()(data[row.position : segment.end_of(number)]))
        for number, row in enumerate(segment.rows)
    ]
    objects[0].write_bytes(data + footer_of(segment.header, rows, segment.aborted))


def swap(objects: list[Path]) -> None:
    one, other = objects[0].read_bytes(), objects[1].read_bytes()
    objects[0].write_bytes(other)
    objects[1].write_bytes(one)


def named(caplog: pytest.LogCaptureFixture, **fields: Any) -> bool:
    """Return whether the last line of the log has these fields."""
    found = caplog.records[-1].__dict__["fields"]
    return all(found[key] == value for key, value in fields.items())


CHANGES: dict[str, Callable[[list[Path]], object]] = {
    "base offset": flip(5),
    "record": flip(500),
    "header": flip(-60),
    "trailer": flip(-1),
    "missing": lambda objects: objects[0].unlink(),
    "short": lambda objects: objects[0].write_bytes(objects[0].read_bytes()[:3000]),
    "swapped": swap,
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_corrupt_object_is_an_error_and_never_other_records(
    tier: Tier, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await tier.fill()
    await tier.move()
    CHANGES[name](tier.objects())
    answer = await fetch(tier.broker, 0)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and not rows_in(answer.records)
    assert "remote read failed" in caplog.text and named(caplog, topic="t", partition=0, offset=0)
    local = (await tier.offset(-4)).offset
    assert (await fetch(tier.broker, local)).error_code == 0


@pytest.mark.parametrize(("offset", "size"), [(0, 1), (5, 1 << 20), (5, 1)])
@pytest.mark.parametrize("length", [-12, -(1 << 31)])
@pytest.mark.parametrize("form", ["batch", "record"])
async def test_a_forged_segment_is_an_error_and_ends_no_broker(
    tier: Tier, form: str, length: int, offset: int, size: int
) -> None:
    await tier.fill(form)
    await tier.move()
    forge(tier.objects(), length)
    answer = await fetch(tier.broker, offset, size=size)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and not rows_in(answer.records)


async def test_records_below_the_new_start_are_out_of_range_and_their_objects_go(
    tier: Tier,
) -> None:
    await tier.fill()
    await tier.move()
    count = len(tier.objects())
    answer = await tier.delete_below(55)
    assert (answer.error_code, answer.low_watermark) == (0, 55)
    assert (await fetch(tier.broker, 54)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await tier.read(55) == tier.sent[55:]
    await tier.move()
    assert 0 < len(tier.objects()) < count
    assert (await tier.offset(-2)).offset == 55
    end = (await tier.offset(-1)).offset
    assert (await tier.delete_below(end)).low_watermark == end
    await tier.move()
    assert tier.objects() == [] and await tier.read(end) == []


async def test_retention_by_bytes_removes_the_oldest_segments(tier: Tier) -> None:
    await tier.fill(retention_bytes="500000")
    await tier.move()
    start = (await tier.offset(-2)).offset
    assert 0 < start < (await tier.offset(-4)).offset
    assert await tier.read(start) == tier.sent[start:]


async def test_retention_by_time_removes_everything(tier: Tier) -> None:
    await tier.fill(retention_ms="1", local_retention_ms="1")
    await tier.move()
    services = tier.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    await services.store.run(
        services.keys.partition("t", 0, topic.id).apply_retention(
            retention_ms=1, retention_bytes=-1, steps=64
        )
    )
    await tier.move()
    end = (await tier.offset(-1)).offset
    assert (await tier.offset(-2)).offset == (await tier.offset(-4)).offset == end
    assert tier.objects() == []
    assert (await tier.offset(-6)).offset == -1


async def test_lag_counts_the_records_of_segments(tier: Tier) -> None:
    await tier.fill()
    await tier.move()
    services = tier.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    for offset in (0, 15, 40, 79, 100, 119, 120):
        call = services.keys.partition("t", 0, topic.id).lag(offset=offset)
        assert (await services.store.run(call)).records == 120 - offset


async def test_a_small_segment_waits_for_segment_ms(tier: Tier) -> None:
    await tier.fill(segment_bytes="1000000", segment_ms=str(10**13))
    await tier.move()
    assert tier.objects() == []
    assert (await tier.offset(-6)).offset == -1


async def test_copying_can_be_disabled(tier: Tier) -> None:
    await tier.fill(remote_log_copy_disable="true", local_retention_bytes="-2")
    await tier.move()
    assert tier.objects() == [] and await tier.in_redis() == BATCHES


# Each name is a call of the copy or removal, which fails before or after it had its effect.
STEPS = ["claim_copy", "put", "add_segment", "apply_retention", "expire_segments", "delete"]
STEPS.append("forget_segments")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
async def test_another_broker_continues_after_a_crash_at_any_step(
    tier: Tier, step: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "LEASE_MS", 0)
    await tier.fill(retention_bytes="500000")
    store = tier.broker.services.store
    segments = tier.broker.services.tiered.segments
    assert segments is not None
    run, crashed = store.run, False

    class Crash(Exception):
        pass

    async def crash(name: str, act: Any) -> Any:
        nonlocal crashed
        if crashed or name != step:
            return await act()
        crashed = True
        if after:
            await act()
        raise Crash

    async def run_call(call: Any) -> Any:
        return await crash(call.script.name.removeprefix("log."), lambda: run(call))

    def wrapped(name: str) -> Any:
        original = getattr(segments, name)
        return lambda *given, **how: crash(name, lambda: original(*given, **how))

    with monkeypatch.context() as patch:
        patch.setattr(store, "run", run_call)
        patch.setattr(segments, "put", wrapped("put"))
        patch.setattr(segments, "delete", wrapped("delete"))
        with pytest.raises(Crash):
            await tier.move("one")
    await tier.move("two")
    await tier.move("two")
    start = (await tier.offset(-2)).offset
    assert start > 0
    assert await tier.read(start) == tier.sent[start:], "nothing lost, nothing doubled"


async def test_a_holder_that_lost_the_lease_adds_no_segment(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tier.fill()
    segments = tier.broker.services.tiered.segments
    assert segments is not None
    monkeypatch.setattr(copier, "LEASE_MS", 0)
    put, overtaken = segments.put, False

    async def slow(name: str, data: bytes, **how: bool) -> None:
        nonlocal overtaken
        await put(name, data, **how)
        if not overtaken:
            overtaken = True
            await tier.move("two")

    monkeypatch.setattr(segments, "put", slow)
    await tier.move("one")
    assert await tier.read() == tier.sent
    names = [path.name.split("-")[0] for path in tier.objects()]
    assert len(names) == len(set(names)), "the refused object is deleted"


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"cleanup.policy": "compact"}, "only supports topics with cleanup.policy=delete"),
        ({"retention.ms": "1000", "local.retention.ms": "2000"}, "must not be more than"),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "1"}, "identical value"),
    ],
)
async def test_configs_that_exclude_each_other_are_refused(
    tier: Tier, configs: dict[str, str], words: str
) -> None:
    wanted = {"remote.storage.enable": "true", **configs}
    rows = [CreatableTopicConfig(name=key, value=value) for key, value in wanted.items()]
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=rows
    )
    answer = (await tier.broker.ask(CreateTopicsRequest(topics=[topic]))).topics[0]
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert words in answer.error_message


async def test_the_objects_of_a_deleted_topic_are_deleted(tier: Tier) -> None:
    await tier.fill()
    await tier.move()
    services, now_ms = tier.broker.services, int(time() * 1000)
    topic = await services.topics.get("t")
    assert topic is not None and tier.objects()
    await delete_topic(services.store, services.keys, topic)
    services.topics.invalidate()
    left = len(tier.objects())
    await tier.manager().delete_objects(now_ms)
    assert len(tier.objects()) == left, "deleted later: a copy may be in progress"
    key = services.keys.deleted_topics()
    for waiting in (1, 0):
        await tier.manager().delete_objects(now_ms + 61_000)
        assert tier.objects() == []
        assert await services.store.command("ZCARD", key) == waiting


async def test_objects_are_created_once(tier: Tier) -> None:
    segments = tier.broker.services.tiered.segments
    assert segments is not None
    await segments.put("a/b", b"one")
    with pytest.raises(RemoteStorageError, match="a/b"):
        await segments.put("a/b", b"two")
    assert bytes(await segments.get("a/b", 0, 3)) == b"one"
    assert await segments.names("a") == ["a/b"]
    await segments.delete("a/b")
    await segments.delete("a/b")
