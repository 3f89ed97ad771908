"""Check library reads of records that left Redis, with and without an event loop."""

from datetime import UTC, datetime

import pytest

from korvet.library.async_korvet import AsyncKorvet
from korvet.library.korvet import Korvet
from korvet.library.values import KorvetError
from korvet.remote_log.manifest import RemoteOnly, count_remote_only, totals
from tests.remote_log.test_tiered_log import Tier, tier
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
