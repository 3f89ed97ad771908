"""Background tasks of a broker: registration, retention, compaction, timeouts.

Tasks on shared data run in one broker process at a time, which holds a lease in Redis. The lease of
a process that died expires.
"""

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

import anyio

from korvet import logfmt
from korvet.broker.audit_writer import AuditWriter
from korvet.broker.group_metrics import GroupGauges
from korvet.cluster.registration import HEARTBEAT_S
from korvet.context import Services
from korvet.groups.coordinator import CLAIM_LIMIT
from korvet.log.cleaner import LogCleaner, Superseded
from korvet.scripts import broker, log
from korvet.scripts.call import Call, Reply
from korvet.security.authorizer import CHECK_S
from korvet.store.errors import StoreError, StoreRefused, StoreUnavailable
from korvet.topics import stepwise
from korvet.topics.table import Topic
from korvet.transactions.coordinator import EXPIRE_BATCH

REST_S = 0.5
"""Min seconds between two heartbeats that channel messages trigger."""

AT_ONCE = 64
"""Max partitions of a topic that one round of calls covers."""

RETENTION_STEPS = 64
"""Max index steps one log.apply_retention removes: bounds how long the script blocks Redis."""

GAUGES_S = 15.0
"""Seconds between two updates of the group metrics."""

PRODUCERS_S = 600.0
"""Seconds between two expirations of idle producers."""

GROUPS_S = 0.5
"""Seconds between two checks for expired group deadlines."""

HALF_WAY_S = 5.0
"""Seconds after which an unchanged topic change in progress counts as abandoned."""
COMPACTION_LEASE_S = 60.0
TRANSACTIONS_S = 1.0
TRANSACTIONS_LEASE_S = 5.0
TRANSACTION_ROUNDS = 20
"""Max rounds per transaction check while a full batch is due: 2,000 ids per second."""

AGAIN_S = 5.0
"""Seconds until a failed background task is restarted."""

SAY_AGAIN_S = 30.0
"""Min seconds between two log lines with one message."""

R = TypeVar("R", bound=Reply)

logger = logfmt.get("broker.housekeeping")


class BackgroundTasks:
    """The background tasks of one broker process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._holder = f"{services.config.node_id}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._said: dict[str, float] = {}
        self._held_at = 0.0
        self._without_twins: set[str] = set()
        self._retain_every_s = services.settings.integer("log.retention.check.interval.ms") / 1000

    def _away(self, what: str, error: StoreError) -> None:
        """Log a warning that Redis is unavailable, at most once per SAY_AGAIN_S and message."""
        if self._is_news(what):
            logger.warning(what, reason=str(error))

    def _is_news(self, what: str) -> bool:
        """Return whether the message was not logged within SAY_AGAIN_S."""
        now = monotonic()
        if now - self._said.get(what, -SAY_AGAIN_S) < SAY_AGAIN_S:
            return False
        self._said[what] = now
        return True

    async def run(self) -> None:
        """Run until cancelled. The tasks continue when Redis is available again."""
        duties = [
            self._beat,
            self._retain,
            self._follow_configs,
            self._tick_groups,
            self._forget_producers,
            self._look_at_groups,
            self._end_transactions,
            self._compact,
            self._finish_topics,
        ]
        manager = self._services.remote_log_manager(self._holder)
        if manager is not None:
            duties.append(manager.run)
        audit = self._services.audit
        if audit.queue is not None:
            duties.append(AuditWriter(self._services, audit.queue, audit.topic).run)
        if self._services.authorizer.enabled:
            duties.append(self._follow_acls)
        async with anyio.create_task_group() as tasks:
            for duty in duties:
                tasks.start_soon(self._keep_up, duty)

    async def _keep_up(self, duty: Callable[[], Awaitable[None]]) -> None:
        """Run a task. Log an unexpected error and restart this task after AGAIN_S."""
        while True:
            try:
                await duty()
            except Exception as error:
                logger.exception(
                    "background task failed", error, task=getattr(duty, "__name__", "")
                )
                await anyio.sleep(AGAIN_S)

    async def _beat(self) -> None:
        while True:
            try:
                async with self._services.notifier.listen(
                    [self._services.keys.brokers_channel()]
                ) as bell:
                    while True:
                        await bell.wait(HEARTBEAT_S)
                        await self.beat()
                        # Two brokers with one node id notify each other with each heartbeat.
                        await anyio.sleep(REST_S)
            except StoreError as error:
                self._away("broker heartbeat failed, retrying", error)
                await anyio.sleep(HEARTBEAT_S)

    async def beat(self) -> None:
        """Renew this broker's registration; log an error if another broker has its node id."""
        other = await self._services.registration.heartbeat()
        what = "another broker has this node id: set a different --node-id"
        if other is not None and self._is_news(what):
            logger.error(what, node_id=other.id, other=other.addresses)

    async def _follow_configs(self) -> None:
        """Apply dynamic configs of brokers and groups that any broker changed."""
        services = self._services
        async with services.notifier.listen([services.keys.configs_channel()]) as bell:
            while True:
                try:
                    await services.dynamic_config.refresh()
                except StoreError as error:
                    self._away("dynamic config refresh failed, retrying", error)
                await bell.wait(HEARTBEAT_S)

    async def _follow_acls(self) -> None:
        """Apply ACL rules that any broker changed."""
        services = self._services
        async with services.notifier.listen([services.keys.acls_channel()]) as bell:
            while True:
                try:
                    await services.authorizer.refresh()
                except StoreError as error:
                    self._away("ACL refresh failed, retrying", error)
                await bell.wait(CHECK_S)

    async def _retain(self) -> None:
        every = self._retain_every_s
        while True:
            await anyio.sleep(every)
            try:
                if await self.hold("retention", every * 2):
                    await self.retain_all()
            except StoreError as error:
                self._away("retention failed, retrying", error)

    async def _tick_groups(self) -> None:
        groups = self._services.groups
        while True:
            await anyio.sleep(GROUPS_S)
            try:
                while await groups.tick_due() == CLAIM_LIMIT:
                    pass
            except StoreError as error:
                self._away("group deadline check failed, retrying", error)

    async def _finish_topics(self) -> None:
        """Complete topic changes of brokers that died while creating, growing or deleting."""
        known: dict[str, bytes] = {}
        while True:
            await anyio.sleep(HALF_WAY_S)
            try:
                if await self.hold("topics", HALF_WAY_S * 3):
                    known = await self.finish_topics(known)
            except StoreError as error:
                self._away("topic change recovery failed, retrying", error)

    async def finish_topics(self, known: Mapping[str, bytes]) -> dict[str, bytes]:
        """Complete the topic changes that are in progress since the last call (`known`).

        Returns the other changes in progress.
        """
        services = self._services
        found = await services.topics.find_unfinished()
        for name, raw in found.items():
            if known.get(name) == raw:
                await stepwise.finish(services.store, services.keys, name, raw)
                logger.info("unfinished topic change completed", topic=name)
        return {name: raw for name, raw in found.items() if known.get(name) != raw}

    async def _end_transactions(self) -> None:
        """Check due transactions, in one broker process at a time."""
        name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        every = min(self._services.settings.integer(name) / 1000, TRANSACTIONS_S)
        while True:
            await anyio.sleep(every)
            try:
                await self.end_due_transactions()
            except StoreError as error:
                self._away("transaction check failed, retrying", error)

    async def end_due_transactions(self) -> None:
        """Check the transactions that are due, up to a bound, if this process has the lease."""
        for _ in range(TRANSACTION_ROUNDS):
            if not await self.hold("transactions", TRANSACTIONS_LEASE_S):
                return
            looked_at = await self._services.transactions.expire_due(
                forget_ms=self._services.settings.integer("transactional.id.expiration.ms")
            )
            if looked_at < EXPIRE_BATCH:
                return

    async def _look_at_groups(self) -> None:
        gauges = GroupGauges(self._services)
        while True:
            await anyio.sleep(GAUGES_S)
            try:
                if await self.hold("group-gauges", GAUGES_S * 2):
                    await gauges.look()
                else:
                    gauges.clear()
            except StoreError as error:
                logger.warning("group metrics update failed, retrying", reason=str(error))

    async def _forget_producers(self) -> None:
        while True:
            await anyio.sleep(PRODUCERS_S)
            try:
                if await self.hold("producers", PRODUCERS_S * 2):
                    await self.forget_all()
            except StoreError as error:
                logger.warning("producer expiration failed, retrying", reason=str(error))

    async def forget_all(self) -> None:
        """Expire the idle producers of every partition."""
        services = self._services
        silence_ms = services.settings.integer("producer.id.expiration.ms")
        for topic in await services.topics.all():
            for number in range(topic.partitions):
                cursor = b"0"
                while True:
                    call = log.expire_producers(
                        services.keys, topic.name, number, cursor=cursor, silence_ms=silence_ms
                    )
                    replies = await self._each(topic, {number: call}, "producers", PRODUCERS_S)
                    cursor = replies[number].cursor if replies else b"0"
                    if cursor == b"0":
                        break

    async def _each(
        self, topic: Topic, calls: Mapping[int, Call[R]], duty: str, every: float
    ) -> dict[int, R]:
        """Return the replies by partition.

        An error of one partition is logged and does not affect the others. If one Redis of a
        cluster is unavailable, the other partitions' replies are returned; if no Redis is, renewing
        the lease raises.
        """
        found = await asyncio.gather(
            *(self._services.store.submit(call) for call in calls.values()), return_exceptions=True
        )
        replies: dict[int, R] = {}
        away: StoreUnavailable | None = None
        for number, reply in zip(calls, found, strict=True):
            if isinstance(reply, StoreUnavailable):
                away = reply
            elif not isinstance(reply, StoreError | Reply):
                raise reply
            elif isinstance(reply, StoreError):
                logger.error(
                    "background task failed", topic=topic.name, partition=number, error=reply
                )
            else:
                replies[number] = reply
        if away is not None:
            self._away(f"{duty}: some partitions unavailable, retrying", away)
            await self.hold(duty, every * 2)
        return replies

    async def _compact(self) -> None:
        while True:
            await self._cleaner_backoff()
            try:
                await self.compact_all()
            except StoreError as error:
                logger.warning("compaction failed, retrying", reason=str(error))

    async def _cleaner_backoff(self) -> None:
        """Wait for log.cleaner.backoff.ms; a change of the setting applies to this wait too."""
        began = monotonic()
        while True:
            backoff_s = self._services.settings.integer("log.cleaner.backoff.ms") / 1000
            left = began + backoff_s - monotonic()
            if left <= 0:
                return
            await anyio.sleep(min(left, HEARTBEAT_S))

    async def compact_all(self) -> None:
        """Compact every compacted topic whose log is dirty enough."""
        topics = await self._services.topics.all()
        if not await self._drop_twins([each for each in topics if not each.policy.compact]):
            return
        for topic in topics:
            for number in range(topic.partitions if topic.policy.compact else 0):
                if not await self._holds_compaction():
                    return
                await self._compact_one(topic, number)

    async def _drop_twins(self, topics: Sequence[Topic]) -> bool:
        """Delete the compacted copies that a failed cleaner pass left of these topics.

        The topics are no longer compacted: no later pass would delete the copies. Returns False if
        another process has the lease.
        """
        new = [each for each in topics if each.id not in self._without_twins]
        if new and not await self._holds_compaction():
            return False
        self._without_twins &= {each.id for each in topics}
        for topic in new:
            error = await self._drop_twins_of(topic)
            if error is not None:  # retried in the next round; compaction must not wait for it
                self._away("stale compacted copies not deleted, retrying", error)
                break
            self._without_twins.add(topic.id)
        return True

    async def _drop_twins_of(self, topic: Topic) -> StoreError | None:
        """Delete the compacted copies of the topic's partitions; return the error if one fails."""
        store, keys = self._services.store, self._services.keys
        for first in range(0, topic.partitions, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, topic.partitions))
            names = [keys.partition(topic.name, number).compacted for number in numbers]
            found = await asyncio.gather(
                *(store.submit_command("UNLINK", name) for name in names), return_exceptions=True
            )
            for error in found:
                if isinstance(error, StoreError):
                    return error
        return None

    async def _compact_one(self, topic: Topic, number: int) -> None:
        """Run the cleaner on a partition; its failure does not affect other partitions."""
        services, place = self._services, {"topic": topic.name, "partition": number}
        try:
            rest = self._rest_and_hold
            outcome = await LogCleaner(services.store, services.keys, topic, number, rest).run()
        except StoreUnavailable as error:
            if isinstance(error, StoreRefused) and error.code == "OOM":
                logger.warning("partition compaction failed: Redis is out of memory", **place)
            else:  # one node of a cluster may be down: renewing the lease raises if all are
                self._away("partition compaction failed, retrying", error)
            return
        except Exception as error:
            logger.exception("partition compaction failed", error, **place)
            return
        if outcome is not None:
            logger.info("partition compacted", **place, removed=outcome.removed)

    async def _holds_compaction(self) -> bool:
        self._held_at = monotonic()
        return await self.hold("compaction", COMPACTION_LEASE_S)

    async def _rest_and_hold(self, seconds: float) -> None:
        """Sleep, and renew the lease once a quarter of its time has passed.

        Raises Superseded if another process has the lease.
        """
        await anyio.sleep(seconds)
        overdue = monotonic() - self._held_at > COMPACTION_LEASE_S / 4
        if overdue and not await self._holds_compaction():
            raise Superseded

    async def hold(self, name: str, seconds: float) -> bool:
        """Acquire or renew the lease for that long; return whether this process holds it."""
        reply = await self._services.store.run(
            broker.lease(
                self._services.keys,
                name=name,
                holder=self._holder,
                ttl_ms=max(1, int(seconds * 1000)),
            )
        )
        return reply.held == 1

    async def retain_all(self) -> None:
        """Apply retention to every topic."""
        for topic in await self._services.topics.all():
            policy = topic.policy
            if policy.delete and (policy.retention_ms >= 0 or policy.retention_bytes >= 0):
                await self._retain_topic(topic)

    async def _retain_topic(self, topic: Topic) -> None:
        services, policy = self._services, topic.policy
        pending = list(range(topic.partitions))
        while pending:
            calls = {
                number: log.apply_retention(
                    services.keys,
                    topic.name,
                    number,
                    topic_id=topic.id,
                    retention_ms=policy.retention_ms,
                    retention_bytes=policy.retention_bytes,
                    steps=RETENTION_STEPS,
                )
                for number in pending[:AT_ONCE]
            }
            replies = await self._each(topic, calls, "retention", self._retain_every_s)
            removed = sum(reply.removed for reply in replies.values())
            if removed:
                services.metrics.expired_records.add(removed)
                logger.info("expired entries removed", topic=topic.name, entries=removed)
            more = [number for number, reply in replies.items() if reply.more == 1]
            pending = more + pending[AT_ONCE:]
