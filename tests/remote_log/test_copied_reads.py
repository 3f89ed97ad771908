"""Check that copied records still in Redis are read from segments, and from Redis if that fails."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from korvet.base.errors import ErrorCode
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.remote_log.chunk_cache import LocalChunks
from korvet.remote_log.reader import RemoteLogReader
from tests.remote_log.test_copies import value
from tests.remote_log.test_remote_transactions import Writer, read_committed
from tests.remote_log.test_tiered_log import BATCHES, PER_BATCH, Tier, tier
from tests.support.exchanges import SHAPES, fetch

__all__ = ["tier"]
shapes = pytest.mark.parametrize(("form", "mode"), SHAPES)
SEGMENTS_HAVE = 300_000
"""Bytes of a read of all 800 KB that segments serve at least: the end is read from Redis."""
EVENT = "segment not readable, reading Redis"
LOCAL = {"local_retention_bytes": "1000000000", "local_retention_ms": "-1"}
"""The local part may be shorter than the log: segments stay in the page cache."""


@pytest.fixture(autouse=True)
def no_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of 1 MB treated like a large one: no part of it counts as its tail."""
    monkeypatch.setattr("korvet.log.read_cache.TAIL_SHARE", 1 << 40)
    monkeypatch.setattr("korvet.remote_log.reader.PREPARE_S", 0.0)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the reasons of reads that segments could not serve."""
    lines = [each for each in caplog.records if each.getMessage() == EVENT]
    return [str(each.__dict__["fields"]["reason"]) for each in lines]


def from_segments(tier: Tier) -> float:
    """Return the number of bytes that consumers got from segments."""
    return value(tier, "korvet_remote_fetched_bytes")


def remote_reader(tier: Tier) -> RemoteLogReader:
    remote = tier.broker.services.log_reader.remote
    assert isinstance(remote, RemoteLogReader)
    return remote


async def prepared(tier: Tier, start: int, committed: bool = False) -> None:
    """Fetch from the offset until segments can serve it, or cannot."""
    states = tier.broker.services.log_reader.states
    assert states is not None
    # The first fetch learns that the log is copied. The second may forget deleted segments.
    for _ in range(3):
        states._states.clear()  # as FRESH_S later: one from before the copy says "not copied"
        await fetch(tier.broker, start, size=100_000, committed=committed)
        await asyncio.gather(*remote_reader(tier)._preparing)
        tier.broker.services.log_reader.cache._batches.clear()


async def copied(tier: Tier, form: str = "batch", mode: str = "dense") -> int:
    """Fill the topic, copy it, and keep all of it in Redis; return its first offset."""
    await tier.fill(form, mode, **LOCAL)
    before = await tier.in_redis()
    await tier.move()
    assert await tier.in_redis() == before and len(tier.objects()) >= 2
    return int((await tier.offset(-2)).offset)


@shapes
@pytest.mark.parametrize("committed", [False, True])
async def test_a_catch_up_read_takes_segments_and_gets_the_same_records(
    tier: Tier, form: str, mode: str, committed: bool
) -> None:
    start = await copied(tier, form, mode)
    assert await tier.read(start, committed=committed) == tier.sent
    for offset in (start, (await tier.offset(1000 + 5 * PER_BATCH)).offset):
        await prepared(tier, offset, committed)
    before = from_segments(tier)
    assert await tier.read(start, committed=committed) == tier.sent
    assert from_segments(tier) - before > SEGMENTS_HAVE


@pytest.mark.parametrize(
    ("local", "total", "form", "prefers"),
    [
        ("-2", "-1", "batch", False),
        ("-2", "10", "batch", False),
        ("-1", "10", "batch", False),
        ("10", "10", "batch", False),
        ("9", "10", "batch", True),
        ("9", "-1", "batch", True),
        ("-2", "-1", "record", True),
    ],
)
@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_segments_are_preferred_for_a_shorter_local_part_and_for_layout_record(
    local: str, total: str, form: str, prefers: bool, unit: str
) -> None:
    given = {f"local.retention.{unit}": local, f"retention.{unit}": total, "storage.format": form}
    other = {"ms": "bytes", "bytes": "ms"}[unit]
    policy = TopicConfigs(Settings()).policy("t", {**given, f"retention.{other}": "-1"})
    assert policy.prefers_segments is prefers


@pytest.mark.parametrize("local_bytes", ["-2", "-1"])
async def test_batches_that_stay_in_redis_as_long_as_in_the_log_are_read_there(
    tier: Tier, local_bytes: str
) -> None:
    await tier.fill(local_retention_bytes=local_bytes, local_retention_ms="-2")
    await tier.move()
    start = int((await tier.offset(-2)).offset)
    for _ in range(2):
        await prepared(tier, start)
        assert await tier.read(start) == tier.sent
    assert from_segments(tier) == 0 and not remote_reader(tier)._preparing


@shapes
async def test_clients_that_take_no_batches_read_redis(tier: Tier, form: str, mode: str) -> None:
    start = await copied(tier, form, mode)
    assert await tier.read(start) == tier.sent
    before = from_segments(tier)
    assert await tier.read(start, 2) == tier.sent
    assert from_segments(tier) == before


@shapes
async def test_a_fetch_inside_a_batch_gets_that_batch(tier: Tier, form: str, mode: str) -> None:
    start = await copied(tier, form, mode)
    await prepared(tier, start)
    offset = (await tier.offset(1000 + PER_BATCH + 4)).offset
    before = from_segments(tier)
    assert await tier.read(offset) == tier.sent[PER_BATCH + 4 :]
    assert from_segments(tier) > before


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(60, len(data), 5000):
        data[at] ^= 1
    path.write_bytes(data)


@shapes
@pytest.mark.parametrize("harm", [Path.unlink, flip])
@pytest.mark.parametrize("is_known", [False, True])
async def test_what_a_segment_does_not_give_is_read_from_redis(
    tier: Tier,
    caplog: pytest.LogCaptureFixture,
    form: str,
    mode: str,
    harm: Callable[[Path], None],
    is_known: bool,
) -> None:
    start = await copied(tier, form, mode)
    if is_known:
        assert await tier.read(start) == tier.sent
    else:
        await fetch(tier.broker, start, size=100_000)
    await asyncio.gather(*remote_reader(tier)._preparing)
    assert not warned(caplog)
    segments = tier.broker.services.tiered.segments
    assert segments is not None
    remote_reader(tier).source = LocalChunks(segments)  # nothing is read ahead
    for path in tier.objects():
        harm(path)
    before = from_segments(tier)
    for committed in (False, True):
        assert await tier.read(start, committed=committed) == tier.sent
    await asyncio.gather(*remote_reader(tier)._preparing)
    assert from_segments(tier) == before and warned(caplog)


async def test_a_segment_that_takes_too_long_is_not_waited_for(
    tier: Tier, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = await copied(tier)
    remote = remote_reader(tier)

    async def late(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(remote, "_read", late)
    monkeypatch.setattr(remote, "read_now", lambda *_: None)
    assert await tier.read(start) == tier.sent
    await asyncio.gather(*remote._preparing)
    assert set(warned(caplog)) == {"remote.fetch.max.wait.ms passed"}


@shapes
async def test_deleted_records_are_not_read_from_segments(tier: Tier, form: str, mode: str) -> None:
    start = await copied(tier, form, mode)
    await prepared(tier, start)
    offset = (await tier.offset(1000 + 2 * PER_BATCH + 3)).offset
    assert (await tier.delete_below(offset)).error_code == 0
    for below in (start, offset - 1):
        answer = await fetch(tier.broker, below)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    before = from_segments(tier)
    assert await tier.read(offset) == tier.sent[2 * PER_BATCH + 3 :]
    assert from_segments(tier) > before


@shapes
async def test_aborted_transactions_are_those_that_redis_has(
    tier: Tier, form: str, mode: str
) -> None:
    configs = {"storage_format": form, "offset_mode": mode, "remote_storage_enable": "true"}
    sizes = {"segment_bytes": "15000", "retention_ms": "-1", **LOCAL}
    await tier.broker.create("t", partitions=1, **configs, **sizes)
    one, two = Writer(tier, "one"), Writer(tier, "two")
    await one.begin()
    await two.begin()
    for turn in range(8):
        for number in range(3):
            for writer in (one, two):
                await writer.send(f"{writer.name[0]}{turn:02}-{number} ".encode() * 400, number)
        await one.end(turn % 2 > 0)
        await two.end(turn % 3 > 0)
    await one.send(b"open" * 1000, 0)
    hot = await read_committed(tier)
    assert from_segments(tier) == 0
    await tier.move()
    tier.broker.services.log_reader.cache._batches.clear()  # has all: they are small
    for _ in range(3):
        assert await read_committed(tier) == hot
        await asyncio.gather(*remote_reader(tier)._preparing)
        tier.broker.services.log_reader.cache._batches.clear()
    assert from_segments(tier) > 0


async def test_a_limit_of_remote_reads_does_not_delay_them(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = await copied(tier)
    services = tier.broker.services
    limited = {"remote.log.manager.fetch.max.bytes.per.second": "1"}
    monkeypatch.setattr(
        services.dynamic_config, "settings", services.settings.with_dynamic(limited)
    )
    assert await tier.read(start) == tier.sent
    assert from_segments(tier) == 0


async def test_an_object_store_is_not_read_for_records_in_redis(tier: Tier) -> None:
    start = await copied(tier)
    tier.use_cache()
    for _ in range(2):
        assert await tier.read(start) == tier.sent
    assert from_segments(tier) == 0


async def test_what_is_cached_is_not_read_from_segments(tier: Tier) -> None:
    await tier.fill(**LOCAL)
    for _ in range(2):
        assert await tier.read() == tier.sent
    await tier.move()
    hits = tier.broker.services.log_reader.cache.hits
    assert await tier.read() == tier.sent
    assert from_segments(tier) == 0
    assert tier.broker.services.log_reader.cache.hits > hits + BATCHES // 2


@shapes
async def test_a_log_that_is_not_tiered_any_more_is_read_from_redis(
    tier: Tier, form: str, mode: str
) -> None:
    start = await copied(tier, form, mode)
    assert await tier.read(start) == tier.sent
    services = tier.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    place = services.keys.partition("t", 0, topic.id)
    reply = await services.store.run(place.drop_segments(delay_ms=0, most=100))
    assert reply.removed
    for path in tier.objects():
        path.unlink()
    assert await tier.read(start) == tier.sent
    before = from_segments(tier)
    await tier.move()  # copies again, to other files
    services.log_reader.cache._batches.clear()  # has what was read from Redis twice
    await prepared(tier, start)
    assert await tier.read(start) == tier.sent
    assert from_segments(tier) > before


async def test_segments_are_looked_up_again_after_a_reconnection(tier: Tier) -> None:
    start = await copied(tier)
    await prepared(tier, start)
    services, remote = tier.broker.services, remote_reader(tier)
    topic = await services.topics.get("t")
    assert topic is not None and remote.read_now(topic, 0, start, 100_000) is not None
    services.store.connection_epoch += 1
    assert remote.read_now(topic, 0, start, 100_000) is None
    assert remote._known.cached(topic, 0, start) is None
    await prepared(tier, start)
    assert await tier.read(start) == tier.sent
    assert remote._known.cached(topic, 0, start) is not None
