"""Delete objects that a crash left between their write and their row in the manifest.

Rules
- Objects are listed first, the manifest is read after: an object whose row was added by then has
  it. A removed segment's row is in the other sorted set until its object is deleted.
- Only objects older than MIN_AGE_S, and only under the partition's lease: a copy task that was
  suspended before it added the row has an earlier fencing number then, and is refused.
"""

from datetime import UTC, datetime

from korvet.keys import Keys
from korvet.remote_log.manifest import SegmentRow
from korvet.remote_log.store import SegmentStore
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic

MIN_AGE_S = 3600.0
LEASE_MS = 60_000


async def delete_orphans(
    store: AsyncStore,
    keys: Keys,
    segments: SegmentStore,
    cluster_id: str,
    holder: str,
    topic: Topic,
    partition: int,
) -> int:
    """Delete the partition's objects that no manifest names. Returns how many there were."""
    claim = await store.run(
        keys.partition(topic.name, partition, topic.id).claim_copy(holder=holder, ttl_ms=LEASE_MS)
    )
    if claim.error or not claim.fence:
        return 0
    prefix, now = f"{cluster_id}/{topic.id}/{partition}", datetime.now(UTC)
    await segments.delete_staged(prefix, MIN_AGE_S)
    old = {
        name
        for name, written in await segments.objects(prefix)
        if (now - written).total_seconds() >= MIN_AGE_S
    }
    orphans = old - await _named(store, keys, cluster_id, topic, partition) if old else old
    for name in orphans:
        await segments.delete(name)
    return len(orphans)


async def _named(
    store: AsyncStore, keys: Keys, cluster_id: str, topic: Topic, partition: int
) -> set[str]:
    """Return the names of the objects of both manifests."""
    key = keys.partition(topic.name, partition)
    found: set[str] = set()
    for rows in (key.segments, key.deleted_segments):
        for row in await store.command("ZRANGE", rows, 0, -1):
            segment = SegmentRow.parse(row)
            found.add(segment.object_name(cluster_id, topic.id, partition))
    return found
