"""The background task that appends scheduled records when they are due.

Rules
- Redis's clock decides what is due, and a script moves it: a repeated call, or one of a second
  broker, appends nothing twice. The lease only saves calls.
- This process knows from the last reply when the next record of a partition is due. schedule.add
  publishes partitions with a new first record on a channel, which it follows. A lost message, or a
  new process, costs at most a scan: SCAN_S for topics with delivery.schedule.enable, SCAN_ALL_S for
  topics that no longer have it.
- All partitions with scheduled records are called each SCAN_ALL_S: the script notices then if
  Redis's clock was set back.
- Between two calls on a partition are GAP_S: records that are due in that time share a call.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush

import anyio

from korvet.base import logfmt
from korvet.base.bounded import chunks
from korvet.broker.background.runner import Leases
from korvet.scripts.calls.partition import ScheduleAppendDueReply
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.store.notifications import Notifier
from korvet.topics.node import Node

LEASE = "schedule"
LEASE_S = 3.0
"""Seconds after which another process takes over from one that died."""
RENEW_S = 1.0
"""Seconds between two renewals, and between two attempts to get the lease."""
SCAN_S = 1.0
SCAN_ALL_S = 60.0
GAP_S = 0.01
"""Min seconds between two calls on a partition that move all that is due."""
RETRY_S = 0.5
"""Seconds until a partition is tried again after an error."""
AT_ONCE = 100
"""Max partitions of one round, and of one pipeline of a scan."""
MAX_ROWS, MAX_BYTES = 500, 1 << 20
"""Max rows, and bytes, that one call moves: some milliseconds of Redis. In layout `record` a call
moves as many records at most, unless the first row has more."""

TopicPartition = tuple[str, int]
"""A topic's name and a partition."""

logger = logfmt.get("broker.scheduled_delivery")


@dataclass(eq=False, repr=False)
class ScheduledDelivery:
    """Appends the scheduled records that are due, while this process holds the lease."""

    node: Node
    notifier: Notifier
    leases: Leases

    def __post_init__(self) -> None:
        self._due: dict[TopicPartition, float] = {}
        self._queue: list[tuple[float, TopicPartition]] = []
        self._called: dict[TopicPartition, float] = {}
        self._news = asyncio.Event()
        self._holds = False
        self._watches = False
        self._renew_at = self._scan_at = self._scan_all_at = 0.0

    async def run(self) -> None:
        """Move due records until cancelled, also while Redis is unavailable at times."""
        try:
            await self._watch()
            while True:
                try:
                    wait_s = await self.run_once()
                except StoreError as error:
                    logger.warning_again("scheduled delivery failed, retrying", reason=str(error))
                    self._drop()
                    wait_s = RETRY_S
                await self._sleep(wait_s)
        finally:
            await self._release()

    async def _watch(self) -> None:
        """Subscribe to partitions with a new first record, once in this process."""
        if not self._watches:
            self._watches = True
            await self.notifier.watch(self.node.keys.schedule_channel(), self.on_message)

    async def run_once(self) -> float:
        """Move what is due by now; return the seconds until there is more to do."""
        now = _now()
        if now >= self._renew_at:
            await self._renew(now)
        if not self._holds:
            return self._renew_at - now
        if now >= self._scan_at:
            await self._scan(now)
        await self._move(self._ready(_now()))
        upcoming = min(self._renew_at, self._scan_at)
        if self._queue:
            upcoming = min(upcoming, self._queue[0][0])
        return max(0.0, upcoming - _now())

    def on_message(self, message: bytes) -> None:
        """Take the stream's name of a partition with a new first record; empty: any may have."""
        if not self._holds:
            return
        if message:
            stream = message.decode().removeprefix(f"{self.node.keys.namespace}:")
            topic, _, partition = stream.rpartition(":")
            self._expect((topic, int(partition)), 0.0)
        else:
            self._scan_at = 0.0
            self._due.clear()
            self._queue.clear()
        self._news.set()

    def _drop(self) -> None:
        """Forget what is due: another process may hold the lease by now."""
        self._holds = False
        self._renew_at = 0.0
        self._due.clear()
        self._queue.clear()
        self._called.clear()

    async def _renew(self, now: float) -> None:
        held_before, self._holds = self._holds, await self.leases.hold(LEASE, LEASE_S)
        self._renew_at = now + RENEW_S
        if self._holds and not held_before:
            self._scan_at = self._scan_all_at = 0.0
        elif held_before and not self._holds:
            self._drop()
            self._renew_at = now + RENEW_S

    async def _release(self) -> None:
        """End the lease when the broker stops: another process takes over within RENEW_S."""
        if not self._holds:
            return
        self._drop()
        with (
            anyio.CancelScope(shield=True),
            anyio.move_on_after(RETRY_S),
            suppress(StoreError),
        ):
            await self.leases.release(LEASE)

    def _expect(self, partition: TopicPartition, wait_s: float) -> None:
        """Call the partition's script after that time, or after GAP_S if that is later."""
        at = max(_now() + wait_s, self._called.get(partition, 0.0) + GAP_S)
        if at < self._due.get(partition, at + 1):
            self._due[partition] = at
            heappush(self._queue, (at, partition))

    def _ready(self, now: float) -> list[TopicPartition]:
        """Take the partitions whose time has come, at most AT_ONCE."""
        found: list[TopicPartition] = []
        while self._queue and self._queue[0][0] <= now and len(found) < AT_ONCE:
            at, partition = heappop(self._queue)
            if self._due.get(partition) == at:
                del self._due[partition]
                found.append(partition)
        return found

    async def _move(self, places: list[TopicPartition]) -> None:
        """Append the due records of these partitions."""
        for partition in places:
            self._called[partition] = _now()
        found = await asyncio.gather(*map(self._call, places), return_exceptions=True)
        for partition, reply in zip(places, found, strict=True):
            if isinstance(reply, StoreError):
                self._expect(partition, RETRY_S)
                if not isinstance(reply, StoreUnavailable):
                    logger.error_again(
                        "scheduled records not appended, retrying",
                        topic=partition[0],
                        partition=partition[1],
                        error=reply,
                    )
            elif isinstance(reply, BaseException):
                raise reply
            else:
                self._take(partition, reply)

    async def _call(self, topic_partition: TopicPartition) -> ScheduleAppendDueReply | None:
        """Run the script; None if there is no such partition."""
        name, partition = topic_partition
        topic = await self.node.topics.get(name)
        if topic is None or partition >= topic.partitions:
            return None
        return await self.node.store.run(
            self.node.keys.partition(name, partition, topic.id).schedule_append_due(
                stamp=int(topic.policy.log_append_time), max_rows=MAX_ROWS, max_bytes=MAX_BYTES
            )
        )

    def _take(self, partition: TopicPartition, reply: ScheduleAppendDueReply | None) -> None:
        """Account for a reply, and expect the next record."""
        if reply is None or reply.error or reply.wait_ms < 0:
            self._called.pop(partition, None)
        else:
            if not reply.wait_ms and reply.records:
                self._called.pop(partition, None)
            self._expect(partition, reply.wait_ms / 1000)
        if reply is not None and reply.records:
            self.node.metrics.scheduled_appended.add(reply.records)
            self.node.metrics.scheduled_late_seconds.observe(reply.late_ms / 1000)

    async def _scan(self, now: float) -> None:
        """Expect the partitions that have scheduled records and are not expected yet, or all."""
        complete = now >= self._scan_all_at
        topics = await self.node.topics.all()
        places = [
            partition
            for topic in topics
            if complete or topic.policy.schedules
            for number in range(topic.partitions)
            if (partition := (topic.name, number)) not in self._due or complete
        ]
        for some in chunks(places, AT_ONCE):
            names = [self.node.keys.partition(*partition).scheduled for partition in some]
            if not self.node.store.is_cluster and not await self.node.store.command(
                "EXISTS", *names
            ):
                continue
            counts = await asyncio.gather(
                *(self.node.store.command("ZCARD", name) for name in names)
            )
            for partition, count in zip(some, counts, strict=True):
                if count:
                    self._expect(partition, 0.0)
        self._scan_at = now + SCAN_S
        if complete:
            self._scan_all_at = now + SCAN_ALL_S

    async def _sleep(self, seconds: float) -> None:
        """Sleep, at most until a message arrives."""
        with anyio.move_on_after(seconds):
            await self._news.wait()
        self._news.clear()


def _now() -> float:
    return asyncio.get_running_loop().time()
