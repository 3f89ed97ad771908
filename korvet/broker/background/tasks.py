"""Background tasks of a broker: registration, retention, compaction, timeouts.

Tasks on shared data run in one broker process at a time, which holds a lease.
"""

from collections.abc import Mapping
from functools import partial

import anyio

from korvet.base import logfmt
from korvet.broker.background.audit_writer import AuditWriter
from korvet.broker.background.compaction import Compaction
from korvet.broker.background.gauges import (
    ConsumedGauges,
    GroupGauges,
    RedisGauges,
    ScheduleGauges,
)
from korvet.broker.background.retention import CONSUMED_S, FILLS_S, PRODUCERS_S, Retention
from korvet.broker.background.runner import Action, Leases, TaskRunner, log_retry
from korvet.broker.background.scheduled_delivery import ScheduledDelivery
from korvet.cluster.registration import HEARTBEAT_S, MIN_RENEWAL_GAP_S
from korvet.context import Services
from korvet.groups.coordinator import CLAIM_LIMIT
from korvet.groups.lag_survey import INTERVAL_S
from korvet.groups.share_group import list_partitions
from korvet.remote_log.recovery.task import SnapshotTask
from korvet.scripts.call import decode_group
from korvet.scripts.keys import Keys
from korvet.security.authorizer import CHECK_S
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError
from korvet.topics import stepwise
from korvet.topics.table import TopicTable
from korvet.transactions.coordinator import EXPIRE_BATCH

CONFIGS_S = 3.0
"""Max seconds between two checks of the version of the configs."""
GROUPS_S = 0.5
"""Seconds between two checks for expired group deadlines."""

UNFINISHED_S = 5.0
"""Seconds after which an unchanged topic change in progress counts as abandoned."""
TRANSACTION_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
DEAD_LETTERS_S, DEAD_LETTERS_LEASE_S = 10.0, 30.0
"""Seconds between two passes over the groups with a dead letter queue."""
TRANSACTIONS_S = 1.0
TRANSACTIONS_LEASE_S = 5.0
TRANSACTION_ROUNDS = 20
"""Max rounds per transaction check while a full batch is due: 2,000 ids per second."""

logger = logfmt.get("broker.background")


class BackgroundTasks:
    """The background tasks of one broker process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        node, store = services.node, services.store
        self.leases = Leases(store, services.keys, services.config.node_id)
        self.retention = Retention(node, self.leases)
        self.compaction = Compaction(node, self.leases)
        self.scheduled = ScheduledDelivery(node, services.notifier, self.leases)
        self.group_gauges = GroupGauges(services.lag_survey, self.leases)
        self.consumed_gauges = ConsumedGauges(node)
        self.schedule_gauges = ScheduleGauges(node)
        self._redis_gauges = RedisGauges(node)
        self._unfinished: dict[str, bytes] = {}
        self._runner = TaskRunner(services.notifier, services.metrics)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._runner.run(self._tasks())

    def _tasks(self) -> dict[str, Action]:
        """Return the tasks by name. Each runs until cancelled."""
        services, keys = self._services, self._services.keys
        retention = self.retention
        retain = self._leased("retention", retention.interval_s * 2, retention.retain_all)
        expire = self._leased("producers", PRODUCERS_S * 2, retention.expire_producers)
        finish = self._leased("topics", UNFINISHED_S * 3, self._finish_topics)
        unconsumed = self._gauges("held-gauge", self.consumed_gauges)
        scheduled = self._gauges("schedule-gauge", self.schedule_gauges)
        due_s = services.settings.integer(TRANSACTION_INTERVAL) / 1000
        refresh = services.dynamic_config.refresh
        followed: list[tuple[str, str, float, Action]] = [
            ("dynamic config refresh", keys.configs_channel(), CONFIGS_S, refresh)
        ]
        if services.authorizer.enabled:
            acls = keys.acls_channel()
            followed.append(("ACL refresh", acls, CHECK_S, services.authorizer.refresh))
        repeated: list[tuple[str, float, Action]] = [
            ("group deadline check", GROUPS_S, self._tick_groups),
            ("group metrics update", INTERVAL_S, self.group_gauges.update),
            ("Redis metrics update", INTERVAL_S, self._redis_gauges.update),
        ]
        if not services.config.read_only:
            repeated += [
                ("retention", retention.interval_s, retain),
                ("producer expiration", PRODUCERS_S, expire),
                ("topic change recovery", UNFINISHED_S, finish),
                ("transaction check", min(due_s, TRANSACTIONS_S), self.end_due_transactions),
                ("consumed retention", CONSUMED_S, retention.remove_all_consumed),
                ("table fills", FILLS_S, retention.fill_tables),
                ("dead letters", DEAD_LETTERS_S, self.copy_dead_letters),
                ("consumed retention metric", INTERVAL_S, unconsumed),
                ("schedule metric", INTERVAL_S, scheduled),
            ]
        tasks: dict[str, Action] = {"broker heartbeat": self._heartbeats}
        tasks |= {row[0]: partial(self._runner.follow, *row) for row in followed}
        tasks |= {row[0]: partial(self._runner.repeat, *row) for row in repeated}
        if not services.config.read_only:
            tasks["compaction"] = self.compaction.run
            tasks["scheduled delivery"] = self.scheduled.run
        tasks["memory budget"] = services.memory.run
        manager = services.tiered.manager(self.leases.holder)
        if manager is not None and not services.config.read_only:
            tasks["remote log"] = manager.run
            tasks["memory eviction"] = services.tiered.evictor(manager, self.leases.holder).run
            tasks["metadata snapshot"] = self.snapshot_task().run
        if services.audit.queue is not None:
            tasks["audit log"] = AuditWriter(
                services.audit.queue,
                services.audit.topic,
                services.config.node_id,
                services.topics,
                services.auto_creator,
                services.produce,
                services.metrics,
            ).run
        return tasks

    def snapshot_task(self) -> SnapshotTask:
        """Return the task that writes the metadata to the remote store, which there is."""
        services = self._services
        assert services.tiered.segments is not None
        name = "remote.metadata.snapshot.interval.ms"
        return SnapshotTask(
            services.store,
            services.keys,
            services.tiered.segments,
            lambda: services.registration.cluster_id,
            lambda: services.settings.integer(name) / 1000,
            self.leases.hold,
        )

    def _leased(self, lease: str, seconds: float, action: Action) -> Action:
        """Return an action that does nothing while another process holds the lease."""

        async def run() -> None:
            if await self.leases.hold(lease, seconds):
                await action()

        return run

    def _gauges(self, lease: str, gauges: ConsumedGauges | ScheduleGauges) -> Action:
        """Return an action that updates gauges in the process that has the lease.

        Only a process that is scraped takes it: otherwise no scrape would see the rows.
        """

        async def run() -> None:
            if self._services.metrics.is_scraped and await self.leases.hold(lease, INTERVAL_S * 2):
                await gauges.update()
            else:
                gauges.clear()

        return run

    async def _heartbeats(self) -> None:
        while True:
            try:
                async with self._services.notifier.listen(
                    [self._services.keys.brokers_channel()]
                ) as changes:
                    while True:
                        await changes.wait(HEARTBEAT_S)
                        await self.heartbeat()
                        # Two brokers with one node id notify each other with each heartbeat.
                        await anyio.sleep(MIN_RENEWAL_GAP_S)
            except StoreError as error:
                log_retry("broker heartbeat", error)
                await anyio.sleep(HEARTBEAT_S)

    async def heartbeat(self) -> None:
        """Renew this broker's registration; log an error if another broker has its node id."""
        await self._services.epochs.renew()
        other = await self._services.registration.heartbeat()
        if other is not None:
            logger.error_again(
                "another broker has this node id: set a different --node-id",
                node_id=other.id,
                other=other.addresses,
            )

    async def _tick_groups(self) -> None:
        while await self._services.groups.tick_due() == CLAIM_LIMIT:
            pass

    async def _finish_topics(self) -> None:
        self._unfinished = await finish_topics(
            self._services.store, self._services.keys, self._services.topics, self._unfinished
        )

    async def end_due_transactions(self) -> None:
        """Check the transactions that are due, up to a bound, if this process has the lease."""
        for _ in range(TRANSACTION_ROUNDS):
            if not await self.leases.hold("transactions", TRANSACTIONS_LEASE_S):
                return
            checked = await self._services.transactions.expire_due(
                forget_ms=self._services.settings.integer("transactional.id.expiration.ms")
            )
            if checked < EXPIRE_BATCH:
                return

    async def copy_dead_letters(self) -> None:
        """Begin to copy the waiting dead letters of every group with a queue.

        A broker copies them after the request that archived their records. It leaves them if it
        dies first, or if the queue cannot take them.
        """
        services = self._services
        named = map(decode_group, services.configs.groups())
        groups = [group for group in named if services.share.config(group).has_dead_letters]
        if not groups or not await self.leases.hold("dead-letters", DEAD_LETTERS_LEASE_S):
            return
        for group in groups:
            config = services.share.config(group)
            _, _, topics = await services.share_offsets.topics_of(group)
            places = list_partitions(topics)
            states = await services.store.run_many(
                topic.partition(number).share_describe(group=group, most=0)
                for topic, number in places
            )
            for partition, state in zip(places, states, strict=True):
                services.share.dead_letters.notice(group, config, *partition, state.dead_letters)


async def finish_topics(
    store: AsyncStore, keys: Keys, topics: TopicTable, known: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Complete the topic changes that are in progress since the last call (`known`).

    Their brokers died while creating, growing or deleting. Returns the other changes in progress.
    """
    found = await topics.find_unfinished()
    for name, raw in found.items():
        if known.get(name) == raw:
            await stepwise.finish(store, keys, name, raw)
            logger.info("unfinished topic change completed", topic=name)
    return {name: raw for name, raw in found.items() if known.get(name) != raw}
