"""Check copies of records to segments: their choice, buffers, borders, lag and metrics."""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from msgspec import structs

from korvet.base.errors import ErrorCode as E
from korvet.config.durability import Durability
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.remote_log import manager as managers
from korvet.remote_log.copier import Collector, SegmentBuffers
from korvet.remote_log.store import RemoteStorageError
from korvet.wire.segments import SegmentHeader, headers_in, read_segment
from tests.remote_log.test_tiered_log import SEGMENT, Tier, tier
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch, packed, produce, rows

__all__ = ["tier"]


PARTITIONS = 4


@pytest.mark.parametrize("count", [1, 3])
async def test_as_many_partitions_are_copied_at_a_time_as_configured(
    tier: Tier, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tier.broker.create(
        "t",
        partitions=PARTITIONS,
        remote_storage_enable="true",
        segment_bytes="1000",
        retention_ms="-1",
    )
    for number in range(PARTITIONS):
        data = packed([(n, 1000 + n, b"k", b"v" * 100, []) for n in range(20)], 13)
        assert (await produce(tier.broker, data, name="t", number=number)).error_code == 0
    segments, manager = tier.broker.services.tiered.segments, tier.manager()
    assert segments is not None
    put, writing, most = segments.put, set[str](), 0

    async def slow(name: str, data: bytes, **how: bool) -> None:
        nonlocal most
        writing.add(name)
        most = max(most, len(writing))
        for _ in range(100):
            await asyncio.sleep(0.001)
            if len(writing) == count:
                break
        await put(name, data, **how)
        writing.discard(name)

    monkeypatch.setattr(segments, "put", slow)
    name = "remote.log.manager.copier.thread.pool.size"
    limited = tier.broker.services.settings.with_dynamic({name: str(count)})
    monkeypatch.setattr(manager, "node", replace(manager.node, settings=lambda: limited))
    await manager.run_once()
    assert most == count
    assert {path.parent.name for path in tier.objects()} == {str(n) for n in range(PARTITIONS)}


async def test_records_that_no_replica_has_are_not_copied(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover the log continues without them, but a segment would still have them."""
    monkeypatch.setattr(managers, "REPLICA_WAIT_S", 0.01)
    await tier.fill()
    manager = tier.manager()
    topic = await tier.broker.services.topics.get("t")
    assert topic is not None
    policy = structs.replace(topic.policy, acks_all=Durability(replicas=1))
    await manager.move(structs.replace(topic, policy=policy), 0)
    assert tier.objects() == [] and (await tier.offset(-6)).offset == -1
    await manager.move(topic, 0)
    assert tier.objects()


def test_a_buffer_is_used_again_once_its_segment_is_written() -> None:
    buffers = SegmentBuffers()
    first = buffers.take()
    first += b"abc"
    assert buffers.take() is not first
    buffers.give_back(first)
    assert buffers.take() is first and first == b"abc"


def test_a_buffer_with_a_view_is_not_used_again() -> None:
    buffers = SegmentBuffers()
    first = buffers.take()
    first += b"abc"
    view = memoryview(first)
    buffers.give_back(first)
    assert buffers.take() is not first and view == b"abc"


def test_a_buffer_is_dropped_after_a_pass_without_a_copy() -> None:
    buffers = SegmentBuffers()
    first = buffers.take()
    buffers.give_back(first)
    buffers.drop_unused()
    assert buffers.take() is first
    buffers.give_back(first)
    for _ in range(2):
        buffers.drop_unused()
    assert buffers.take() is not first


@pytest.mark.parametrize("mode", ["dense", "time"])
@pytest.mark.parametrize(("size", "is_large"), [(200, False), (60_000, True)])
@pytest.mark.parametrize("with_end", [False, True])
async def test_a_segment_has_all_batches_at_their_offsets(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    size: int,
    is_large: bool,
    with_end: bool,
) -> None:
    await broker.create("t", storage_format="batch", offset_mode=mode)
    random, bases, values = Random(29), list[int](), list[bytes]()
    for _ in range(80):
        values.append(random.randbytes(size))
        answer = await produce(broker, packed(rows(values[-1], b"second"), 13))
        assert answer.error_code == E.NONE
        bases.append(answer.base_offset)
    store, sent = broker.services.store, list[Any]()
    submit = store.submit_range

    def noted(key: str, commands: Any, reply: Any) -> Any:
        sent.append(reply)
        return submit(key, commands, reply)

    monkeypatch.setattr(store, "submit_range", noted)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    collector = Collector(store, topic, 0)
    buffer = bytearray(b"the rest of an earlier segment" * 1000)
    end = bases[-1] + 2 if with_end else None
    writer = await collector.collect(0, 32 << 20, end, buffer)
    assert (writer.records, writer.last) == (160, bases[-1] + 1)
    header = SegmentHeader("id", "c", "t", "0" * 32, 0, 0, 0, 0, 0, -1, "batch", mode, 0)
    whole = b"".join(writer.finish(header, []))
    read_segment(whole)
    batches = memoryview(whole)[: writer.size]
    found = list(headers_in(batches))
    assert [header.base_offset for _, _, header in found] == bases
    for (at, length, _), value in zip(found, values, strict=True):
        assert value in bytes(batches[at : at + length])
    assert bool(sent) == (is_large and not with_end)


async def test_a_log_that_starts_inside_a_batch_is_copied(tier: Tier) -> None:
    await tier.fill()
    assert (await tier.delete_below(5)).low_watermark == 5
    await tier.move()
    assert (await tier.offset(-4)).offset > 5
    assert await tier.read(5) == tier.sent[5:]


async def test_foreign_entries_of_a_batch_topic_do_not_stop_the_copy(tier: Tier) -> None:
    await tier.fill(mode="dense")
    services = tier.broker.services
    stream = services.keys.partition("t", 0).stream
    await services.store.command("XADD", stream, "*", "value", "foreign")
    for n in range(4):
        made = [(0, 5000 + n, b"k", b"%03d" % n * 2000, [])]
        assert (await produce(tier.broker, packed(made, 13))).error_code == 0
        tier.sent.append((5000 + n, made[0][3]))
    await tier.move()

    assert await tier.read() == tier.sent


async def test_a_foreign_batch_that_is_malformed_stops_the_copy_of_its_partition_only(
    tier: Tier, caplog: pytest.LogCaptureFixture
) -> None:
    await tier.fill(mode="dense")
    services = tier.broker.services
    stream = services.keys.partition("t", 0).stream
    await services.store.command("XADD", stream, "*", "batch", b"\xff" * 100, "count", "1")
    end = (await tier.offset(-1)).offset
    for n in range(4):
        made = [(0, 5000 + n, b"k", b"%03d" % n * 2000, [])]
        assert (await produce(tier.broker, packed(made, 13))).error_code == 0
    await tier.manager().run_once()
    assert "remote copy failed" in caplog.text
    assert (await tier.offset(-5)).offset < end


async def test_objects_that_cannot_be_deleted_do_not_stop_the_copy(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tier.fill()
    services = tier.broker.services
    await services.store.command("ZADD", services.keys.deleted_topics(), 1, "f" * 32)
    assert services.tiered.segments is not None

    async def fail(prefix: str) -> list[str]:
        raise RemoteStorageError(f"{prefix}: listing failed")

    monkeypatch.setattr(services.tiered.segments, "names", fail)
    await tier.manager().run_once()
    assert tier.objects()


DAY = 86_400_000
FAR = str(100 * 365 * DAY)


async def copied(tier: Tier) -> int:
    """Return the number of copied records."""
    await tier.move()
    return max(0, int((await tier.offset(-6)).offset))


@pytest.mark.parametrize(
    ("configs", "is_copied"),
    [
        ({}, True),
        ({"remote_copy_lag_ms": "1"}, True),  # the records are of 1970
        ({"remote_copy_lag_ms": FAR}, False),
        ({"remote_copy_lag_ms": FAR, "remote_copy_lag_bytes": "0"}, True),
        ({"remote_copy_lag_ms": "-1"}, False),  # local.retention.ms is no limit
        ({"remote_copy_lag_ms": "-1", "retention_ms": str(DAY)}, True),
        ({"remote_copy_lag_ms": "-1", "remote_copy_lag_bytes": "10000000"}, False),
    ],
)
async def test_a_segment_is_copied_if_its_age_or_the_bytes_after_it_permit_it(
    tier: Tier, configs: dict[str, str], is_copied: bool
) -> None:
    await tier.fill(local_retention_bytes="-2", **configs)
    topic = await tier.broker.services.topics.get("t")
    assert topic is not None
    assert (await tier.manager().copy(topic, 0) > 0) is is_copied


async def test_as_many_bytes_as_configured_are_not_copied(tier: Tier) -> None:
    lag = 300_000
    await tier.fill(
        local_retention_bytes="-2", remote_copy_lag_ms="-1", remote_copy_lag_bytes=str(lag)
    )
    first = await copied(tier)
    rest = sum(len(value or b"") for _, value in tier.sent[first:])
    assert lag <= rest < lag + 250_000


async def test_a_lag_of_minus_one_is_as_long_as_the_local_retention(tier: Tier) -> None:
    configs: dict[str, Any] = {"remote_copy_lag_ms": "-1", "remote_copy_lag_bytes": "-1"}
    await tier.fill(local_retention_bytes="300000", **configs)
    first = await copied(tier)
    rest = sum(len(value or b"") for _, value in tier.sent[first:])
    assert first and rest >= 300_000


async def test_the_memory_budget_does_not_wait_for_the_lag(tier: Tier) -> None:
    await tier.fill(local_retention_bytes="-2", remote_copy_lag_ms=FAR)
    topic = await tier.broker.services.topics.get("t")
    assert topic is not None
    assert await tier.manager().copy(topic, 0) == 0
    assert await tier.manager().copy(topic, 0, at_once=(1, 1 << 20)) > 0


@pytest.mark.parametrize("unit", ["ms", "bytes"])
@pytest.mark.parametrize(("local", "total"), [("10", "-1"), ("-2", "10"), ("10", "20")])
def test_a_lag_above_the_local_retention_is_refused(unit: str, local: str, total: str) -> None:
    configs = TopicConfigs(Settings())
    given = {f"retention.{unit}": total, f"local.retention.{unit}": local}
    found = configs.find_conflict("t", {**given, f"remote.copy.lag.{unit}": "11"})
    assert f"Invalid value 11 for configuration remote.copy.lag.{unit}" in str(found)
    for value in ("10", "0", "-1"):
        assert configs.find_conflict("t", {**given, f"remote.copy.lag.{unit}": value}) is None


def test_the_broker_gives_the_default() -> None:
    settings = Settings({"log.remote.copy.lag.ms": "7", "log.remote.copy.lag.bytes": "8"})
    assert TopicConfigs(settings).policy("t", {}).copy_lags == (7, 8)
    assert TopicConfigs(Settings()).policy("t", {}).copy_lags == (0, -1)


def value(broker_tier: Tier, name: str, *labels: str) -> float:
    """Return a row of a metric; the sum of all rows without labels."""
    for family in broker_tier.broker.services.metrics.snapshot():
        if family.name == name:
            rows = [row for row in family.samples if row.labels[: len(labels)] == labels]
            return sum(sum(row.buckets) or row.value for row in rows)
    raise AssertionError(name)


async def test_copies_reads_errors_and_lag_are_counted(tier: Tier) -> None:
    manager = tier.manager()
    await tier.fill()
    topic = await tier.broker.services.topics.get("t")
    assert topic is not None
    await manager.move(topic, 0)
    written = sum(path.stat().st_size for path in tier.objects())
    assert value(tier, "korvet_remote_written_bytes") == written
    assert value(tier, "korvet_remote_request_seconds", "write") == len(tier.objects())
    assert 0 <= value(tier, "korvet_remote_copy_lag_bytes", "t", "0") < SEGMENT
    assert 0 <= value(tier, "korvet_remote_copy_lag_records", "t", "0") < 120
    assert value(tier, "korvet_remote_errors") == 0
    await fetch(tier.broker, 0)
    parts = [value(tier, f"korvet_remote_cache_{each}") for each in ("hits", "misses")]
    assert sum(parts) > 0, "the page cache may have all of them"
    assert value(tier, "korvet_remote_fetched_bytes") > 0
    assert 0 < value(tier, "korvet_remote_read_bytes") <= written
    segments = tier.broker.services.tiered.segments
    assert segments is not None
    with pytest.raises(RemoteStorageError, match="read failed"):
        await segments.get("missing", 0, 10)
    assert value(tier, "korvet_remote_errors", "read") == 1


async def test_a_failure_is_logged_once_for_each_partition(
    tier: Tier, caplog: pytest.LogCaptureFixture
) -> None:
    manager = tier.manager()
    for partition in (0, 1, 0, 1):
        manager.log_failure("t", partition, RemoteStorageError("unavailable"))
    lines = [r for r in caplog.records if r.getMessage() == "remote copy failed, retrying"]
    assert len(lines) == 2
