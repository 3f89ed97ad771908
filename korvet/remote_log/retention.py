"""Local and total retention of a tiered partition, and the deletion of orphans.

Orphans are objects that a crash left between their write and their row in the manifest.

Rules
- Orphans: objects are listed first, the manifest is read after. An object whose row was added by
  then has it. A removed segment's row is in the other sorted set until its object is deleted.
- Only objects older than MIN_AGE_S, and only under the partition's lease: a copy task that was
  suspended before it added the row has an earlier fencing number then, and is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from korvet.base.errors import ErrorCode
from korvet.remote_log.manifest import SegmentRow
from korvet.remote_log.store import SegmentStore
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import DropSegmentsReply
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic

MIN_AGE_S = 3600.0
LEASE_MS = 60_000


STEPS = 64
"""Max index steps one log.apply_retention removes: bounds how long the script blocks Redis."""
MAX_SEGMENTS = 100
"""Max segments one log.expire_segments removes."""


@dataclass(eq=False, repr=False)
class RemoteRetention:
    """Trims the local part of partitions, and removes old segments with their objects.

    `holder` names this process in leases.
    """

    store: AsyncStore
    segments: SegmentStore
    cluster_id: Callable[[], str]
    holder: str

    async def delete_orphans(self, topic: Topic, partition: int) -> int:
        """Delete the partition's objects that no manifest names. Returns how many there were."""
        handle = topic.partition(partition)
        claim = await self.store.run(handle.claim_copy(holder=self.holder, ttl_ms=LEASE_MS))
        if claim.error or not claim.fence:
            return 0
        prefix, now = f"{self.cluster_id()}/{topic.id}/{partition}", datetime.now(UTC)
        await self.segments.delete_staged(prefix, MIN_AGE_S)
        orphans = {
            name
            for name, written, _ in await self.segments.listing(prefix)
            if (now - written).total_seconds() >= MIN_AGE_S
        }
        for key in (handle.segments, handle.deleted_segments) if orphans else ():
            for row in await self.store.command("ZRANGE", key, 0, -1):
                orphans.discard(self._object_name(row, topic, partition))
        for name in orphans:
            await self.segments.delete(name)
        return len(orphans)

    def _object_name(self, row: bytes, topic: Topic, partition: int) -> str:
        """Return the name of the object of a manifest's row."""
        return SegmentRow.parse(row).object_name(self.cluster_id(), topic.id, partition)

    async def trim(self, topic: Topic, partition: int) -> None:
        """Remove copied records from Redis as local.retention.ms and .bytes say."""
        policy, more = topic.policy, 1
        if policy.consumed_by:
            return  # the task of retention.consumed trims: local retention would not wait
        retention_ms, retention_bytes = policy.local_limits
        while more and (retention_ms >= 0 or retention_bytes >= 0):
            reply = await self.store.run(
                topic.partition(partition).apply_retention(
                    retention_ms=retention_ms,
                    retention_bytes=retention_bytes,
                    steps=STEPS,
                    is_local=1,
                )
            )
            more = reply.more

    async def expire(self, topic: Topic, partition: int) -> None:
        """Remove old segments, or all if the topic is not tiered any more, and their objects."""
        removed, key = MAX_SEGMENTS, topic.partition(partition).log
        while removed == MAX_SEGMENTS:
            run = self.store.run_of(key)
            reply = await self.store.run(self._expiration(topic, partition))
            if reply.error != ErrorCode.NONE:
                return
            removed = reply.removed
            if reply.due:
                # A failover must not bring back rows of objects that are gone.
                await self.store.until_durable(key, run, (topic.name,))
            for row in reply.due:
                await self.segments.delete(self._object_name(row, topic, partition))
            if reply.due:
                await self.store.run(topic.partition(partition).forget_segments(rows=reply.due))

    def _expiration(self, topic: Topic, partition: int) -> Call[DropSegmentsReply]:
        handle, policy = topic.partition(partition), topic.policy
        delay_ms = policy.file_delete_delay_ms
        if not policy.remote_storage and policy.remote_delete_on_disable:
            return handle.drop_segments(delay_ms=delay_ms, most=MAX_SEGMENTS)
        retention_ms, retention_bytes = policy.total_limits
        return handle.expire_segments(
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            delay_ms=delay_ms,
            most=MAX_SEGMENTS,
        )
