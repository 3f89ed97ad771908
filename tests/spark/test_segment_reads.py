"""Check reads of records that left Redis from segments, without the option `archive`."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual

from korvet.remote_log.store import RemoteStorageError
from korvet.spark.errors import DataLoss
from tests.remote_log.test_tiered_log import Tier, tier
from tests.spark.data_source_driver import pieces, read, schema_of, sent, source
from tests.support.exchanges import SHAPES
from tests.support.redis_servers import TestServer

__all__ = ["tier"]


def _options(tier: Tier, **more: object) -> dict[str, object]:
    return {"namespace": tier.broker.services.keys.namespace, "subscribe": "t", **more}


async def _publish(tier: Tier) -> None:
    await tier.broker.services.registration.join()
    await tier.broker.services.tiered.publish()


def _timed_values(rows: list[dict[str, Any]]) -> list[tuple[int, bytes]]:
    return [(int(row["timestamp"].timestamp() * 1000 + 0.5), row["value"]) for row in rows]


@pytest.mark.parametrize(("form", "mode"), SHAPES)
async def test_a_batch_read_takes_segments_and_redis_as_one_log(
    tier: Tier, valkey_server: TestServer, form: str, mode: str
) -> None:
    url = valkey_server.url
    await tier.fill(form, mode)
    before = read(url, **_options(tier))
    assert _timed_values(before) == tier.sent
    await _publish(tier)
    await tier.move()
    local = (await tier.offset(-4)).offset
    assert before[0]["offset"] < local
    assert read(url, **_options(tier)) == before
    assert read(url, **_options(tier, isolation="read_uncommitted")) == before
    found = pieces(url, **_options(tier, maxBytesPerPartition=SPLIT))
    assert len(found) > 3
    assert read(url, **_options(tier, maxBytesPerPartition=SPLIT)) == before
    assert read(url, **_options(tier, maxRecordsPerPartition=7)) == before
    assert read(url, **_options(tier, minPartitions=9)) == before
    middle = before[15]["offset"]
    start = f'{{"t":{{"0":{middle}}}}}'
    assert read(url, **_options(tier, startingOffsets=start)) == before[15:]
    assert read(url, **_options(tier, startingTimestamp=1062)) == before[62:]
    since = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(1.062, UTC))
    assert read(url, filters=[since], **_options(tier))[-58:] == before[62:]
    only = _options(tier, columns="offset")
    assert [row["offset"] for row in read(url, **only)] == [row["offset"] for row in before]


SPLIT = 100_000


@pytest.mark.parametrize(("form", "mode"), SHAPES)
async def test_a_task_continues_in_segments_after_its_records_left_redis(
    tier: Tier, valkey_server: TestServer, form: str, mode: str
) -> None:
    await tier.fill(form, mode)
    await _publish(tier)
    made = source(valkey_server.url, **_options(tier))
    schema = schema_of(made)
    reader = sent(made.reader(schema))
    planned = reader.partitions()
    await tier.move()
    found = [row for piece in planned for batch in reader.read(piece) for row in batch.to_pylist()]
    assert _timed_values(found) == tier.sent


@pytest.mark.parametrize("mode", ["dense", "time"])
async def test_a_stream_divides_a_batch_the_same_way_after_its_records_left_redis(
    tier: Tier, valkey_server: TestServer, mode: str
) -> None:
    await tier.fill("batch", mode)
    await _publish(tier)
    options = _options(
        tier, startingOffsets="earliest", maxOffsetsPerTrigger=50, maxRecordsPerPartition=20
    )
    made = source(valkey_server.url, **options)
    reader = made.streamReader(schema_of(made))
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    before = [piece.ranges for piece in reader.partitions(start, end)]
    await tier.move()
    assert [piece.ranges for piece in reader.partitions(start, end)] == before
    rows: list[Any] = []
    while True:
        for piece in reader.partitions(start, end):
            rows += [row for batch in reader.read(piece) for row in batch.to_pylist()]
        start, end = end, reader.latestOffset(end)
        if start == end:
            break
    assert _timed_values(rows) == tier.sent


async def test_a_missing_object_is_an_error_with_topic_partition_and_offsets(
    tier: Tier, valkey_server: TestServer
) -> None:
    await tier.fill()
    await _publish(tier)
    await tier.move()
    for path in tier.objects():
        path.unlink()
    with pytest.raises(RemoteStorageError, match=r"t-0: offsets 0 to \d+ cannot be read from file"):
        read(valkey_server.url, **_options(tier))


async def test_a_flipped_byte_is_an_error_and_no_row(tier: Tier, valkey_server: TestServer) -> None:
    await tier.fill()
    await _publish(tier)
    await tier.move()
    path = tier.objects()[0]
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with pytest.raises(RemoteStorageError, match=r"t-0: offsets 0 to .*checksum differs"):
        read(valkey_server.url, **_options(tier))


async def test_records_that_retention_removed_meanwhile_are_lost_data(
    tier: Tier, valkey_server: TestServer
) -> None:
    await tier.fill()
    await _publish(tier)
    await tier.move()
    made = source(valkey_server.url, **_options(tier))
    reader = made.reader(schema_of(made))
    planned = reader.partitions()
    await tier.delete_below(15)
    with pytest.raises(DataLoss, match="begins at 15"):
        for piece in planned:
            list(reader.read(piece))


async def test_without_the_url_of_the_store_the_error_names_the_option(
    tier: Tier, valkey_server: TestServer
) -> None:
    await tier.fill()
    await tier.broker.services.registration.join()
    await tier.move()
    url = valkey_server.url
    with pytest.raises(RemoteStorageError, match="remoteStorageUrl"):
        read(url, **_options(tier))
    given = _options(tier, remoteStorageUrl=f"file://{tier.folder}")
    assert _timed_values(read(url, **given)) == tier.sent
