"""Check reads of segments without an event loop, as in Spark's tasks and the commands."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from korvet.log.layouts import records_in
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.remote_log.stored_entries import entries_of
from korvet.remote_log.sync_reader import SyncSegmentReader
from korvet.store.sync_store import SyncStore
from tests.remote_log.test_tiered_log import PER_BATCH, Tier, tier
from tests.support.exchanges import SHAPES
from tests.support.redis_servers import TestServer

__all__ = ["tier"]


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
