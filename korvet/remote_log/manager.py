"""The background task of tiered storage: copy, local retention, removal of old segments.

A pass is spread over half of its interval, and leaves out what has not changed since the last one.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import random
from time import monotonic, time

from korvet.base import logfmt
from korvet.base.bounded import chunks
from korvet.log.foreign_entries import adopt
from korvet.log.read_cache import ReadCache
from korvet.log.unchanged import LOOKED_AT, WORK, WORKED_AT, Unchanged, pace
from korvet.remote_log.copier import PartitionCopier, SegmentBuffers
from korvet.remote_log.copy_demand import CopyDemand, CopyPace, follow
from korvet.remote_log.memory import MemoryBudget
from korvet.remote_log.retention import RemoteRetention
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.store.errors import StoreError
from korvet.store.replica_wait import ReplicaWait
from korvet.topics.node import Node
from korvet.topics.table import Topic

TOPIC_DELAY_MS = 60_000
"""Time between deletion of a topic and of its objects."""
COLLECT_INTERVAL_S = 3600.0
"""Seconds between two searches for objects of crashed copies, which list the store."""
SAY_AGAIN_S = 30.0
MAX_LOGGED = 10_000
"""Partitions whose last failure's time is kept."""
AT_ONCE = 500
"""Keys of one EXISTS."""
LAG_ROWS = 1000
"""Max rows of a metric."""
REPLICA_WAIT_S = 10.0
logger = logfmt.get("remote_log.manager")


@dataclass(eq=False, repr=False)
class RemoteLogManager:
    """Moves the records of every topic with remote.storage.enable."""

    node: Node
    segments: SegmentStore
    replica_wait: ReplicaWait
    cluster_id: Callable[[], str]
    holder: str
    demand: CopyDemand
    memory: MemoryBudget
    cache: ReadCache | None = None

    def __post_init__(self) -> None:
        self._logged_at: dict[tuple[str, int], float] = {}
        self._lags: dict[tuple[str, str], tuple[int, int]] = {}
        self.node.metrics.remote_copy_lag_records.ask = lambda: self._largest_lags(0)
        self.node.metrics.remote_copy_lag_bytes.ask = lambda: self._largest_lags(1)
        self._copied: set[tuple[str, int]] = set()
        self._buffers = SegmentBuffers()
        self._unchanged = Unchanged(self.node.store, self.node.keys)
        self._retention = RemoteRetention(
            self.node.store, self.segments, self.cluster_id, self.holder
        )
        self._pace = CopyPace(
            self.node.settings,
            self.memory,
            lambda: (
                self.demand.appended_bytes
                + (self.cache.catch_up_bytes if self.cache is not None else 0)
            ),
            lambda: sum(size for _, size in self._lags.values()),
        )
        self._collects_at = monotonic() + COLLECT_INTERVAL_S * random()

    async def run(self) -> None:
        """Run until cancelled."""
        following = asyncio.create_task(
            follow(
                self.demand,
                partial(self.copy, is_paced=True),
                lambda: self.copies,
                self.log_failure,
            )
        )
        try:
            while True:
                await asyncio.sleep(self._interval_s)
                await self.run_once()
                if following.done():
                    following.result()
        finally:
            following.cancel()

    async def run_once(self) -> None:
        """Copy and trim each partition once; the failure of one does not affect the others."""
        self._buffers.drop_unused()
        try:
            await self.delete_objects(int(time() * 1000))
        except (StoreError, RemoteStorageError) as error:
            self.log_failure("", -1, error)
        try:
            topics = await self.node.topics.all()
        except StoreError as error:
            return self.log_failure("", -1, error)
        present = {topic.name for topic in topics if topic.policy.remote_storage}
        self.demand.forget_except({topic.id for topic in topics if topic.name in present})
        self._lags = {key: lag for key, lag in self._lags.items() if key[0] in present}
        collects = monotonic() >= self._collects_at
        if collects:
            self._collects_at = monotonic() + COLLECT_INTERVAL_S
        self._unchanged.keep(topics)
        places = [(topic, n) for topic in topics for n in await self._partitions(topic)]
        rate = pace(len(places), self._interval_s)
        for some in chunks(places, LOOKED_AT):
            for group in chunks(some if collects else await self._due(some), WORKED_AT):
                waiting = iter(group)
                await asyncio.gather(*(self._work(waiting, collects) for _ in range(self.copies)))
                if len(group) == WORKED_AT:
                    await asyncio.sleep(WORK * WORKED_AT / rate)
            await asyncio.sleep(len(some) / rate)

    async def _due(self, places: Sequence[tuple[Topic, int]]) -> list[tuple[Topic, int]]:
        """Return the partitions that may have something to copy, trim or remove."""
        found = []
        for topic, number in await self._unchanged.due(places):
            if self._unchanged.is_unused(topic, number):
                self._lags[topic.name, str(number)] = 0, 0
                self._unchanged.settle(topic, number, ())
            else:
                found.append((topic, number))
        return found

    async def _work(self, waiting: Iterator[tuple[Topic, int]], collects: bool) -> None:
        for topic, partition in waiting:
            await self._move_one(topic, partition, collects)

    @property
    def _interval_s(self) -> float:
        return self.node.settings().integer("remote.log.manager.task.interval.ms") / 1000

    @property
    def copies(self) -> int:
        """Partitions to copy at a time: most of a copy is a wait for the remote store."""
        return self.node.settings().integer("remote.log.manager.copier.thread.pool.size")

    async def _move_one(self, topic: Topic, partition: int, collects: bool) -> None:
        """Copy and trim a partition; log its failure."""
        try:
            is_remote = topic.policy.remote_storage
            await (self.move if is_remote else self._retention.expire)(topic, partition)
            if collects:
                await self.collect_orphans(topic, partition)
            policy = topic.policy
            if (topic.name, str(partition)) in self._lags or policy.remote_copy_disable:
                limits = (policy.segment_ms, policy.copy_lags[0], policy.local_limits[0])
                self._unchanged.settle(topic, partition, (*limits, policy.total_limits[0]))
        # ValueError: a batch of another Redis client is malformed.
        except (StoreError, RemoteStorageError, ValueError) as error:
            self.log_failure(topic.name, partition, error)

    async def delete_objects(self, now_ms: int) -> None:
        """Delete the objects of topics deleted TOPIC_DELAY_MS before."""
        due = await self.node.store.command(
            "ZRANGEBYSCORE", self.node.keys.deleted_topics(), "-inf", now_ms - TOPIC_DELAY_MS
        )
        for topic_id in due:
            names = await self.segments.names(f"{self.cluster_id()}/{topic_id.decode()}")
            for name in names:
                await self.segments.delete(name)
            # A copy in progress may have added one: forgotten only once a listing is empty.
            if not names:
                await self.node.store.run(
                    self.node.keys.topic_forget_deleted(topic_id=topic_id.decode())
                )

    async def collect_orphans(self, topic: Topic, partition: int) -> None:
        """Delete the objects of crashed copies, unless this process is copying the partition.

        A copy in progress has the same lease: after a step of the clock its object seems to be old.
        """
        partition_id = (topic.id, partition)
        if partition_id in self._copied:
            return
        self._copied.add(partition_id)
        try:
            count = await self._retention.delete_orphans(topic, partition)
        finally:
            self._copied.discard(partition_id)
        if count:
            logger.info(
                "orphaned segments deleted", topic=topic.name, partition=partition, count=count
            )

    def log_failure(self, topic: str, partition: int, error: Exception) -> None:
        """Log it, once in SAY_AGAIN_S for each partition."""
        now, key = monotonic(), (topic, partition)
        if now - self._logged_at.get(key, -SAY_AGAIN_S) >= SAY_AGAIN_S:
            if len(self._logged_at) >= MAX_LOGGED:
                self._logged_at.clear()
            self._logged_at[key] = now
            logger.warning(
                "remote copy failed, retrying", topic=topic, partition=partition, reason=str(error)
            )

    async def move(self, topic: Topic, partition: int) -> None:
        """Copy what is due, trim the local part, and remove old segments."""
        await adopt(self.node.store, topic, partition)
        while await self.copy(topic, partition) and not self._pace.is_slow:
            pass  # while copies are slow, what is due follows in the other task
        await self._retention.trim(topic, partition)
        await self._retention.expire(topic, partition)

    async def _partitions(self, topic: Topic) -> Sequence[int]:
        """Return a topic's partitions; only those with segments if it is not tiered any more."""
        if topic.policy.remote_storage:
            return range(topic.partitions)
        keys = [topic.partition(n) for n in range(topic.partitions)]
        names = [name for each in keys for name in (each.segments, each.deleted_segments)]
        try:
            if not await self._any_exists(names):
                return []
            counts = await asyncio.gather(
                *(
                    self.node.store.command("EXISTS", each.segments, each.deleted_segments)
                    for each in keys
                )
            )
        except StoreError as error:
            self.log_failure(topic.name, -1, error)
            return []
        return [number for number, count in enumerate(counts) if count]

    async def _any_exists(self, names: Sequence[str]) -> bool:
        """Return whether a key exists; True in a cluster, where a command has keys of one slot."""
        if self.node.store.is_cluster:
            return True
        counts = [await self.node.store.command("EXISTS", *some) for some in chunks(names, AT_ONCE)]
        return any(counts)

    async def copy(
        self,
        topic: Topic,
        partition: int,
        at_once: tuple[int, int] | None = None,
        *,
        is_paced: bool = False,
    ) -> int:
        """Copy the next segment if it is due. Returns its bytes, 0 if there is none.

        `at_once`: copy now whatever has at least the first number of bytes, up to the second.
        `is_paced`: wait for clients first.
        """
        partition_id = (topic.id, partition)
        await self._pace.wait(is_paced=is_paced)
        if topic.policy.remote_copy_disable or partition_id in self._copied:
            return 0
        self._copied.add(partition_id)
        key = topic.name, str(partition)
        self._lags.pop(key, None)
        try:
            if not await self._is_durable(topic, partition):
                return 0
            copier = PartitionCopier(
                self.node.store,
                self.segments,
                self.cluster_id(),
                self.holder,
                topic,
                partition,
                self._buffers,
                self.cache,
            )
            before, size = self.demand.pending(*partition_id), 0
            try:
                size = await copier.copy_segment(at_once)
                self._pace.copied(size)
                return size
            finally:
                if copier.lag is not None:
                    self._lags[key] = copier.lag
                lag = None if copier.lag is None else max(0, copier.lag[1] - size)
                self.demand.note_copy(*partition_id, before, lag, size)
        finally:
            self._copied.discard(partition_id)

    def _largest_lags(self, unit: int) -> dict[tuple[str, ...], float]:
        """Return the rows of a metric, largest first: `unit` 0 is records, 1 bytes."""
        rows = sorted(self._lags.items(), key=lambda row: -row[1][unit])
        return {key: lag[unit] for key, lag in rows[:LAG_ROWS]}

    async def _is_durable(self, topic: Topic, partition: int) -> bool:
        """Return whether replicas and disk have the log, as acks=-1 asks for."""
        required = topic.policy.acks_all
        if required is None:
            return True
        key = topic.partition(partition).stream
        run = self.node.store.run_of(key)
        return await self.replica_wait.wait(
            key, run=run, required=required, timeout_s=REPLICA_WAIT_S
        )
