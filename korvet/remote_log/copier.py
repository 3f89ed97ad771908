"""Copy one partition's records to segments: object first, then the script that adds it.

Rules
- Under the partition's lease, with its fencing number: log.add_segment refuses an earlier holder's.
- Records below the last stable offset only. A segment is written once it has segment.bytes, or its
  first record is older than segment.ms.
- A crash after the write leaves an object that no manifest names: no reader sees it.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import time

from korvet.config.topic_policy import TopicPolicy
from korvet.log.layouts import layout_of
from korvet.log.opening import in_thread
from korvet.log.read_cache import ReadCache
from korvet.remote_log.collector import Collector, CopyCache
from korvet.remote_log.manifest import object_name
from korvet.remote_log.store import SegmentStore
from korvet.scripts.calls.partition import ClaimCopyReply
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError
from korvet.topics.table import Topic
from korvet.wire.segment_writer import SegmentWriter

MAX_SEGMENT_BYTES = 32 << 20
"""Max bytes of a segment: it is built in memory."""
LEASE_MS = 4000
"""Duration of the lease: bounds the pause after a crash, while producers may have to wait."""
RENEW_S = 1.0
"""Seconds between two renewals of the lease during a copy."""


class SegmentBuffers:
    """Lends buffers to the copies of one process, and keeps one of them.

    32 MB of fresh memory cost 8,000 page faults.
    """

    def __init__(self) -> None:
        self._kept: bytearray | None = None
        self._is_used = False

    def take(self) -> bytearray:
        """Return a buffer of any size and content."""
        self._is_used = True
        found, self._kept = self._kept, None
        return bytearray() if found is None or _is_in_use(found) else found

    def give_back(self, buffer: bytearray) -> None:
        """Keep the buffer for the next segment. Its object must be written, or never have been."""
        self._kept = buffer

    def drop_unused(self) -> None:
        """Free the memory if no segment was copied since the last call."""
        if not self._is_used:
            self._kept = None
        self._is_used = False


def _is_in_use(buffer: bytearray) -> bool:
    """Return whether a view of the buffer exists: Python then refuses to resize it."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False


@dataclass(eq=False, repr=False)
class PartitionCopier:
    """Copies one partition; `holder` names this process in the lease."""

    store: AsyncStore
    segments: SegmentStore
    cluster_id: str
    holder: str
    topic: Topic
    partition: int
    buffers: SegmentBuffers
    cache: ReadCache | None = None

    def __post_init__(self) -> None:
        self._collector = Collector(
            self.store,
            self.topic,
            self.partition,
            None if self.cache is None else CopyCache(self.cache),
        )
        self.lag: tuple[int, int] | None = None
        """Records and bytes that were not copied when the lease was acquired; None if another
        process holds it."""

    async def copy_segment(self, at_once: tuple[int, int] | None = None) -> int:
        """Copy the next segment if it is due. Returns its bytes, 0 if there is none.

        `at_once`: min and max bytes of a segment that is due now, whatever its age.
        """
        claim = await self._claim()
        self.lag = (claim.records, claim.bytes) if claim.fence else None
        if claim.error or not claim.fence or not await self._is_due(claim, at_once):
            return 0
        renewal = asyncio.create_task(self._renew(claim.fence))
        try:
            return await self._copy(claim, at_once)
        finally:
            renewal.cancel()

    async def _copy(self, claim: ClaimCopyReply, at_once: tuple[int, int] | None) -> int:
        policy = self.topic.policy
        max_bytes = segment_bytes(policy) if at_once is None else at_once[1]
        buffer = self.buffers.take()
        writer = await self._collector.collect(claim.first, max_bytes, buffer=buffer)
        now_ms = int(time() * 1000)
        may_copy = at_once is not None or self._may_copy(claim, writer, now_ms)
        size = 0
        if writer.size and may_copy:
            size = await self._publish(claim.fence, writer, now_ms, at_once is not None)
        # After an exception the object may still be being written.
        self.buffers.give_back(buffer)
        return size

    def _may_copy(self, claim: ClaimCopyReply, writer: SegmentWriter, now_ms: int) -> bool:
        """Return whether the segment is old enough, or enough was appended after it."""
        lag_ms, lag_bytes = self.topic.policy.copy_lags
        is_old = lag_ms == 0 or (lag_ms > 0 and writer.max_timestamp <= now_ms - lag_ms)
        return is_old or 0 <= lag_bytes <= claim.bytes - writer.size

    async def _claim(self) -> ClaimCopyReply:
        """Acquire or renew the partition's lease."""
        topic, number = self.topic, self.partition
        return await self.store.run(
            topic.partition(number).claim_copy(holder=self.holder, ttl_ms=LEASE_MS)
        )

    async def _renew(self, fence: int) -> None:
        """Renew the lease until cancelled, or until another process has it."""
        claimed = fence
        while claimed == fence:
            await asyncio.sleep(RENEW_S)
            with suppress(StoreError):
                claimed = (await self._claim()).fence

    async def _publish(
        self, fence: int, writer: SegmentWriter, now_ms: int, is_urgent: bool
    ) -> int:
        """Write the object, then add it to the log; delete it if the script refuses it."""
        topic, number = self.topic, self.partition
        segment_id, parts = await self._collector.finish(writer, self.cluster_id, now_ms)
        name, size = (
            object_name(self.cluster_id, topic.id, number, writer.first, segment_id),
            sum(map(len, parts)),
        )
        is_read_soon = is_urgent or topic.policy.prefers_segments
        await self.segments.put(name, parts, is_read_soon=is_read_soon)
        reply = await self.store.run(
            topic.partition(number).add_segment(
                fence=fence,
                first=writer.first,
                last=writer.last,
                records=writer.records,
                size=size,
                row=f"{size - writer.size}:{writer.max_timestamp}:{segment_id}",
            )
        )
        if not reply.added:
            await self.segments.delete(name)
            return 0
        if self.cache is not None:
            self.cache.drop_unread(topic, number, writer.first, writer.last)
        return size

    async def _is_due(self, claim: ClaimCopyReply, at_once: tuple[int, int] | None) -> bool:
        """Return whether there are bytes for a segment, or the first record is old enough."""
        policy = self.topic.policy
        if at_once is not None:
            return claim.bytes >= at_once[0]
        if claim.bytes >= segment_bytes(policy):
            return True
        result = await self._collector.read(claim.first, 1)
        find = partial(layout_of(self.topic).timestamps_of, self.topic)
        rows = [await in_thread(partial(find, entry, 0)) for entry in result.entries]
        oldest = max((time for found in rows for time, _ in found), default=0)
        return bool(result.entries) and oldest + policy.segment_ms <= time() * 1000


def segment_bytes(policy: TopicPolicy) -> int:
    """Return the bytes at which a segment is written."""
    return min(policy.segment_bytes, MAX_SEGMENT_BYTES)
