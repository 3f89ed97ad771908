"""Check reads of segments by the library, and by tasks and commands without an event loop."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from korvet.library.async_korvet import AsyncKorvet
from korvet.library.korvet import Korvet
from korvet.library.values import KorvetError
from korvet.log.layouts import records_in
from korvet.remote_log.manifest import RemoteOnly, count_remote_only, totals
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.remote_log.stored_entries import entries_of
from korvet.remote_log.sync_reader import SyncSegmentReader
from korvet.store.sync_store import SyncStore
from tests.remote_log.test_tiered_log import PER_BATCH, Tier, tier
from tests.support.exchanges import SHAPES, fetch, rows_in
from tests.support.redis_servers import TestServer

__all__ = ["tier"]


@pytest.mark.parametrize(("form", "mode"), SHAPES)
async def test_the_library_reads_segments_and_redis_as_one_log(
    tier: Tier, valkey_server: TestServer, form: str, mode: str
) -> None:
    await tier.broker.services.registration.join()
    await tier.fill(form, mode)
    await tier.move()
    local = (await tier.offset(-4)).offset
    first = (await tier.offset(-2)).offset
    namespace = tier.broker.services.keys.namespace
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": f"file://{tier.folder}",
    }
    sought = datetime.fromtimestamp(1.0625, UTC)
    with Korvet.connect(valkey_server.url, namespace=namespace, settings=settings) as log:
        assert log.offsets("t")[0].earliest == first < local
        assert [(r.timestamp_ms, r.value) for r in log.records("t", 0)] == tier.sent
        committed = log.records("t", 0, committed=True)
        assert [(r.timestamp_ms, r.value) for r in committed] == tier.sent
    url = valkey_server.url
    async with await AsyncKorvet.connect(url, namespace=namespace, settings=settings) as log_async:
        found = [(r.timestamp_ms, r.value) async for r in log_async.records("t", 0)]
        assert found == tier.sent
        offset = await log_async.find_offset("t", 0, sought)
        assert first < offset < local
        assert (await log_async.fetch("t", 0, offset)).records[0].timestamp_ms == 1062
        assert await log_async.find_offset("t", 0, "earliest") == first


async def test_the_library_takes_the_url_that_brokers_stored(
    tier: Tier, valkey_server: TestServer
) -> None:
    await tier.broker.services.registration.join()
    await tier.broker.services.tiered.publish()
    await tier.fill()
    await tier.move()
    namespace = tier.broker.services.keys.namespace
    with Korvet.connect(valkey_server.url, namespace=namespace) as log:
        assert [(r.timestamp_ms, r.value) for r in log.records("t", 0)] == tier.sent
        log.create_topic("cold", 1, {"remote.storage.enable": "true"})


async def test_without_the_url_of_the_store_the_log_begins_in_redis(
    tier: Tier, valkey_server: TestServer
) -> None:
    await tier.fill()
    await tier.move()
    local = (await tier.offset(-4)).offset
    namespace = tier.broker.services.keys.namespace
    with Korvet.connect(valkey_server.url, namespace=namespace) as log:
        assert log.offsets("t")[0].earliest == local
        with pytest.raises(KorvetError, match=r"remote\.storage\.url"):
            log.fetch("t", 0, 0)


async def test_the_totals_of_a_manifest_are_those_of_its_segments(tier: Tier) -> None:
    await tier.fill()
    services = tier.broker.services
    place = services.keys.partition("t", 0)
    assert await totals(services.store, place) == (0, 0, 0, 0)
    await tier.move()
    found = await totals(services.store, place)
    sizes = [path.stat().st_size for path in tier.objects()]
    local = (await tier.offset(-4)).offset
    copied = (await tier.offset(-6)).offset
    assert found == (local, len(sizes), copied, sum(sizes))


@pytest.mark.parametrize(("form", "mode"), SHAPES)
async def test_cold_and_total_records_are_counted_across_the_border(
    tier: Tier, form: str, mode: str
) -> None:
    await tier.fill(form, mode)
    await tier.move()
    services = tier.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    start, local, end = [(await tier.offset(moment)).offset for moment in (-2, -4, -1)]
    middle = rows_in((await fetch(tier.broker, start)).records)[15][0]

    async def part(first: int) -> RemoteOnly:
        return await count_remote_only(
            services.store,
            topic,
            0,
            start=first,
            local_start=max(first, local),
            local_bytes=7,
        )

    whole, below = await part(start), await part(middle)
    cold = [row for row in await tier.read() if row not in await tier.read(local)]
    assert whole.total_records == 120 and whole.remote_only_records == len(cold)
    if mode == "dense":  # else the records of a part of a segment are an estimate
        assert (below.total_records, below.remote_only_records) == (105, len(cold) - 15)
    sizes = [path.stat().st_size for path in tier.objects()]
    assert 0 < below.remote_only_bytes < whole.remote_only_bytes <= sum(sizes)
    assert whole.total_bytes == whole.remote_only_bytes + 7
    assert await part(end) == (0, 0, 0, 7)


@pytest.fixture
def store(valkey_server: TestServer) -> Iterator[SyncStore]:
    with SyncStore.connect(valkey_server.url) as made:
        yield made


@pytest.fixture
async def reader(tier: Tier, store: SyncStore) -> AsyncIterator[SyncSegmentReader]:
    await tier.broker.services.registration.join()
    await tier.broker.services.tiered.publish()
    with SyncSegmentReader.open(store, tier.broker.services.keys) as made:
        yield made


async def read(tier: Tier, reader: SyncSegmentReader, start: int, end: int) -> list[object]:
    """Return timestamp and value of the records of a range."""
    topic = await tier.broker.services.topics.get("t")
    assert topic is not None
    runs = reader.runs(topic.partition(0), start, end)
    entries = [each for run in runs for each in entries_of(topic, run.batches)]
    found = [row for row in records_in(topic, entries) if start <= row[0] < end]
    return [(row[1], row[3]) for row in found]


@pytest.mark.parametrize(("form", "mode"), SHAPES)
async def test_a_range_of_offsets_is_read(
    tier: Tier, reader: SyncSegmentReader, form: str, mode: str
) -> None:
    await tier.fill(form, mode)
    await tier.move()
    start, end = (await tier.offset(-2)).offset, (await tier.offset(-6)).offset
    rows = reader.rows(reader.keys.partition("t", 0), start, end)
    assert (rows[0].first, rows[-1].last + 1) == (start, end)
    assert await read(tier, reader, start, end) == tier.sent[: sum(row.records for row in rows)]
    third = (await tier.offset(1003)).offset
    inside = (await tier.offset(1000 + 4 * PER_BATCH)).offset
    assert await read(tier, reader, third, inside) == tier.sent[3 : 4 * PER_BATCH]


async def test_a_range_is_divided_between_segments_of_about_a_size(
    tier: Tier, reader: SyncSegmentReader
) -> None:
    await tier.fill()
    await tier.move()
    partition = reader.keys.partition("t", 0)
    rows = reader.rows(partition, 0, 120)
    ends = [row.last + 1 for row in rows]
    one = max(row.data_bytes for row in rows)
    assert len(ends) >= 3
    assert list(reader.cuts(partition, 0, 120, 1)) == ends
    assert list(reader.cuts(partition, 0, ends[1] - 1, 1)) == [ends[0], ends[1] - 1]
    assert next(reader.cuts(partition, 0, 120, one + 1)) == ends[1]
    assert list(reader.cuts(partition, 0, 120, len(rows) * one + 1)) == [120]
    assert list(reader.cuts(partition, 120, 120, 1)) == []


async def test_an_error_names_topic_partition_and_offsets(
    tier: Tier, reader: SyncSegmentReader
) -> None:
    await tier.fill()
    await tier.move()
    path = tier.objects()[0]
    data = bytearray(path.read_bytes())
    data[70_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(RemoteStorageError, match=r"t-0: offsets 0 to 39 .* checksum differs"):
        await read(tier, reader, 0, 60)
    path.unlink()
    with pytest.raises(RemoteStorageError, match=r"t-0: offsets 0 to 39 .* read failed"):
        await read(tier, reader, 0, 60)
    with pytest.raises(RemoteStorageError, match="t-0: offsets 120 to 129 are in no segment"):
        await read(tier, reader, 120, 130)


async def test_a_store_whose_url_is_unknown_is_an_error(
    tier: Tier, store: SyncStore, tmp_path: Path
) -> None:
    services = tier.broker.services
    with pytest.raises(RemoteStorageError, match="no broker has stored a cluster id"):
        SyncSegmentReader.open(store, services.keys)
    await services.registration.join()
    with pytest.raises(RemoteStorageError, match="remoteStorageUrl"):
        SyncSegmentReader.open(store, services.keys)
    SyncSegmentReader.open(store, services.keys, f"file://{tmp_path}").close()
    with pytest.raises(RemoteStorageError, match="no such directory"):
        SyncSegmentReader.open(store, services.keys, f"file://{tmp_path}/other")


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("memory:///", ""),
        ("s3://key:secret@bucket/a?token=1", "s3://bucket/a"),
        ("abfss://container@account.dfs/a", "abfss://container@account.dfs/a"),
    ],
)
def test_the_stored_url_has_no_credentials(url: str, public: str) -> None:
    made = SegmentStore("memory:///")
    made.url = url
    assert made.public_url == public
