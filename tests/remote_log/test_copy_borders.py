"""Check the copy of a log that starts inside a batch, or that has foreign entries."""

import pytest

from korvet.remote_log.store import RemoteStorageError
from tests.remote_log.test_tiered_log import Tier, tier
from tests.support.exchanges import packed, produce

__all__ = ["tier"]


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
