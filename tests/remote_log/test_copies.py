"""Check the choice of copied records, and the number of partitions copied at a time."""

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from korvet.config.durability import Durability
from korvet.remote_log import manager as managers
from tests.remote_log.test_tiered_log import Tier, tier
from tests.support.exchanges import packed, produce

__all__ = ["tier"]
pytestmark = pytest.mark.anyio
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
