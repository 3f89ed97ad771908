"""Check metrics of the remote store, and one log line per partition that cannot be copied."""

import pytest

from korvet.remote_log.store import RemoteStorageError
from tests.remote_log.test_tiered_log import SEGMENT, Tier, tier
from tests.support.exchanges import fetch

__all__ = ["tier"]


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
