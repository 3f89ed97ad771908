"""What a broker does without being asked: says it is alive, and lets go of what retention ends.

Each duty is held by one broker at a time, by a lease in Redis; a dead holder's lease runs out.
"""

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

import anyio

from korvet import logfmt
from korvet.broker.group_metrics import GroupGauges
from korvet.cluster.registration import HEARTBEAT_S
from korvet.context import Services
from korvet.groups.coordinator import CLAIM_LIMIT
from korvet.log.cleaner import LogCleaner, Superseded
from korvet.scripts import broker, log
from korvet.scripts.call import Call, Reply
from korvet.store.errors import StoreError, StoreRefused, StoreUnavailable
from korvet.topics import stepwise
from korvet.topics.table import Topic
from korvet.transactions.coordinator import EXPIRE_BATCH

REST_S = 0.5
"""How soon a broker that was rung for may say again that it is alive."""

AT_ONCE = 64
"""Partitions of a topic that one look asks about side by side."""

RETENTION_STEPS = 64
"""Index steps one log.apply_retention may remove: it bounds how long Redis is held."""

GAUGES_S = 15.0
"""How often the lag of groups is measured."""

PRODUCERS_S = 600.0
"""How often silent producers are looked for."""

GROUPS_S = 0.5
"""How often groups are looked for whose deadlines nobody has met by asking."""

HALF_WAY_S = 5.0
"""A change of a topic that is half-way for so long is somebody's who died."""
COMPACTION_LEASE_S = 60.0
TRANSACTIONS_S = 1.0
TRANSACTIONS_LEASE_S = 5.0
TRANSACTION_ROUNDS = 20
"""So often in a row transactions are looked for while many are due: 2,000 ids a second."""

AGAIN_S = 5.0
"""A duty that failed begins again after so long."""

SAY_AGAIN_S = 30.0
"""How soon the same trouble is worth another line in the log."""

R = TypeVar("R", bound=Reply)

logger = logfmt.get("broker.housekeeping")


class BackgroundTasks:
    """The background work of one broker process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._holder = f"{services.config.node_id}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._said: dict[str, float] = {}
        self._held_at = 0.0
        self._without_twins: set[str] = set()
        self._retain_every_s = services.settings.integer("log.retention.check.interval.ms") / 1000

    def _away(self, what: str, error: StoreError) -> None:
        """It is said now and then, however often it is tried again before Redis is back."""
        if self._is_news(what):
            logger.warning(what, reason=str(error))

    def _is_news(self, what: str) -> bool:
        """Whether that was not said for a while."""
        now = monotonic()
        if now - self._said.get(what, -SAY_AGAIN_S) < SAY_AGAIN_S:
            return False
        self._said[what] = now
        return True

    async def run(self) -> None:
        """Runs until cancelled; Redis being away is waited out."""
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
        async with anyio.create_task_group() as tasks:
            for duty in duties:
                tasks.start_soon(self._keep_up, duty)

    async def _keep_up(self, duty: Callable[[], Awaitable[None]]) -> None:
        """An error nobody expected is in the log, and is this duty's alone: it begins again."""
        while True:
            try:
                await duty()
            except Exception as error:
                logger.exception("a duty failed", error, duty=getattr(duty, "__name__", ""))
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
                        # Two that have one node id ring for each other at each beat.
                        await anyio.sleep(REST_S)
            except StoreError as error:
                self._away("not registered", error)
                await anyio.sleep(HEARTBEAT_S)

    async def beat(self) -> None:
        """This broker is registered; that another has its node id is in the log."""
        other = await self._services.registration.heartbeat()
        what = "another broker has this node id: give each its own with --node-id"
        if other is not None and self._is_news(what):
            logger.error(what, node_id=other.id, other=f"{other.host}:{other.port}")

    async def _follow_configs(self) -> None:
        """What any broker changes about brokers and groups is soon in effect here too."""
        services = self._services
        async with services.notifier.listen([services.keys.configs_channel()]) as bell:
            while True:
                try:
                    await services.dynamic_config.refresh()
                except StoreError as error:
                    self._away("configs may be old", error)
                await bell.wait(HEARTBEAT_S)

    async def _retain(self) -> None:
        every = self._retain_every_s
        while True:
            await anyio.sleep(every)
            try:
                if await self.hold("retention", every * 2):
                    await self.retain_all()
            except StoreError as error:
                self._away("retention waits", error)

    async def _tick_groups(self) -> None:
        groups = self._services.groups
        while True:
            await anyio.sleep(GROUPS_S)
            try:
                while await groups.tick_due() == CLAIM_LIMIT:
                    pass
            except StoreError as error:
                self._away("groups wait", error)

    async def _finish_topics(self) -> None:
        """Topics that a broker died making, growing or deleting do not stay half-way."""
        known: dict[str, bytes] = {}
        while True:
            await anyio.sleep(HALF_WAY_S)
            try:
                if await self.hold("topics", HALF_WAY_S * 3):
                    known = await self.finish_topics(known)
            except StoreError as error:
                self._away("unfinished topics wait", error)

    async def finish_topics(self, known: Mapping[str, bytes]) -> dict[str, bytes]:
        """What was half-way at the last look (`known`) and still is, is done; returns the rest."""
        services = self._services
        found = await services.topics.find_unfinished()
        for name, raw in found.items():
            if known.get(name) == raw:
                await stepwise.finish(services.store, services.keys, name, raw)
                logger.info("finished what another broker began", topic=name)
        return {name: raw for name, raw in found.items() if known.get(name) != raw}

    async def _end_transactions(self) -> None:
        """What is due among the transactions is looked at, by one broker at a time."""
        name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        every = min(self._services.settings.integer(name) / 1000, TRANSACTIONS_S)
        while True:
            await anyio.sleep(every)
            try:
                await self.end_due_transactions()
            except StoreError as error:
                self._away("transactions wait", error)

    async def end_due_transactions(self) -> None:
        """What was due when this began has been looked at, up to a bound, if the duty is ours."""
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
                logger.warning("group gauges wait", reason=str(error))

    async def _forget_producers(self) -> None:
        while True:
            await anyio.sleep(PRODUCERS_S)
            try:
                if await self.hold("producers", PRODUCERS_S * 2):
                    await self.forget_all()
            except StoreError as error:
                logger.warning("producers wait", reason=str(error))

    async def forget_all(self) -> None:
        """Every partition has forgotten the producers that have been silent for too long."""
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
        """The replies by partition. What is wrong with one of them is in the log, and stops no
        other's; one server of several may be away, all raise."""
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
                logger.error("a duty failed", topic=topic.name, partition=number, error=reply)
            else:
                replies[number] = reply
        if away is not None:
            self._away(f"{duty}: some partitions wait", away)
            await self.hold(duty, every * 2)
        return replies

    async def _compact(self) -> None:
        while True:
            await self._cleaner_backoff()
            try:
                await self.compact_all()
            except StoreError as error:
                logger.warning("compaction waits", reason=str(error))

    async def _cleaner_backoff(self) -> None:
        """The pause between two passes is over; one that is changed meanwhile counts at once."""
        began = monotonic()
        while True:
            backoff_s = self._services.settings.integer("log.cleaner.backoff.ms") / 1000
            left = began + backoff_s - monotonic()
            if left <= 0:
                return
            await anyio.sleep(min(left, HEARTBEAT_S))

    async def compact_all(self) -> None:
        """Every compacted topic is compact, as far as that was worth while."""
        topics = await self._services.topics.all()
        if not await self._drop_twins([each for each in topics if not each.policy.compact]):
            return
        for topic in topics:
            for number in range(topic.partitions if topic.policy.compact else 0):
                if not await self._holds_compaction():
                    return
                await self._compact_one(topic, number)

    async def _drop_twins(self, topics: Sequence[Topic]) -> bool:
        """What a pass that died left of its copy is gone, where no other pass will come to take it
        away: these topics are compacted no more. False where that is another process's duty."""
        new = [each for each in topics if each.id not in self._without_twins]
        if new and not await self._holds_compaction():
            return False
        self._without_twins &= {each.id for each in topics}
        for topic in new:
            error = await self._drop_twins_of(topic)
            if error is not None:  # the next look takes these away; others' passes are due now
                self._away("copies of passes that died are left", error)
                break
            self._without_twins.add(topic.id)
        return True

    async def _drop_twins_of(self, topic: Topic) -> StoreError | None:
        """What the topic's partitions have of that is gone, or why not."""
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
        """One pass over a partition; what it holds can stop no other's."""
        services, place = self._services, {"topic": topic.name, "partition": number}
        try:
            rest = self._rest_and_hold
            outcome = await LogCleaner(services.store, services.keys, topic, number, rest).run()
        except StoreUnavailable as error:
            if isinstance(error, StoreRefused) and error.code == "OOM":
                logger.warning("a compaction found no room in Redis", **place)
            else:  # one server of several, perhaps: the lease says whether there is any
                self._away("a compaction waits", error)
            return
        except Exception as error:
            logger.exception("a compaction failed", error, **place)
            return
        if outcome is not None:
            logger.info("compacted", **place, removed=outcome.removed)

    async def _holds_compaction(self) -> bool:
        self._held_at = monotonic()
        return await self.hold("compaction", COMPACTION_LEASE_S)

    async def _rest_and_hold(self, seconds: float) -> None:
        """Others had that long; the duty is still this process's, however long a pass takes."""
        await anyio.sleep(seconds)
        overdue = monotonic() - self._held_at > COMPACTION_LEASE_S / 4
        if overdue and not await self._holds_compaction():
            raise Superseded

    async def hold(self, name: str, seconds: float) -> bool:
        """Whether this process has the duty now, and for that long."""
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
        """Every topic has let go of what its retention ends."""
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
                logger.info("retention", topic=topic.name, entries=removed)
            more = [number for number, reply in replies.items() if reply.more == 1]
            pending = more + pending[AT_ONCE:]
