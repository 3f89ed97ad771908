"""The services of one broker process, and how they are joined."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from korvet.admin.alter_configs import ConfigAdmin
from korvet.admin.auto_create import TopicAutoCreator
from korvet.base.metrics import Metrics
from korvet.cluster.coordinators import Coordinators
from korvet.cluster.registration import BrokerRegistration
from korvet.config.broker_config import Config
from korvet.config.durability import strictest
from korvet.config.dynamic import ConfigTable, DynamicBrokerConfig
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.context.tiered_storage import TieredStorage
from korvet.fetch.partition_reader import PartitionReader, ResponseMemory
from korvet.fetch.sessions import FetchSessions, ReplicaLog
from korvet.groups.coordinator import GroupCoordinator
from korvet.groups.lag_survey import LagSurvey
from korvet.groups.offset_commit import Row
from korvet.groups.offsets_view import OffsetsView
from korvet.groups.share_group import ShareOffsets
from korvet.groups.stream_reads import StreamReads
from korvet.log.append_batcher import AppendBatcher
from korvet.log.leader_epochs import LeaderEpochs
from korvet.log.reader import LogReader
from korvet.produce.acks import wait_for_decision
from korvet.produce.append import PartitionAppender
from korvet.produce.service import ProduceService
from korvet.produce.unknown_producers import UnknownProducers
from korvet.scripts.keys import Keys
from korvet.security.audit import Audit
from korvet.security.authorizer import Authorizer
from korvet.security.mechanisms import Mechanisms
from korvet.security.quotas import Quotas
from korvet.security.session import Session
from korvet.security.users import Users
from korvet.share.service import ShareService
from korvet.store.async_store import AsyncStore
from korvet.store.notifications import Notifier
from korvet.store.replica_wait import ReplicaWait
from korvet.topics.node import Node
from korvet.topics.table import TopicTable
from korvet.transactions.add_partitions import EnlistedPartitions
from korvet.transactions.coordinator import TransactionCoordinator
from korvet.transactions.hanging import HangingTransactions


class Interceptor(Protocol):
    """Answers requests in place of their handlers: fault injection for tests."""

    def __bool__(self) -> bool:
        """Return whether any request is to be intercepted."""

    def response(self, api: Any, request: Any) -> Awaitable[Any] | None:
        """Return the response to a request of `api`, or None to let its handler run."""


class Tracing(Protocol):
    """Calls handlers in spans."""

    def handle(self, row: Any, request: Any, context: Any) -> Awaitable[Any]:
        """Call the handler of the API and return its response to await."""


class ApiRow(Protocol):
    """Fields of an API table row that ApiVersions uses."""

    @property
    def key(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def versions(self) -> tuple[int, int]: ...


@dataclass(eq=False, repr=False)
class Services:
    """The services of one broker process, which all its requests share.

    Each gets what it uses as typed parameters; this class joins them.
    """

    config: Config
    store: AsyncStore
    keys: Keys
    topics: TopicTable
    notifier: Notifier
    registration: BrokerRegistration
    apis: Sequence[ApiRow]
    metrics: Metrics

    def __post_init__(self) -> None:
        self.coordinators = Coordinators(self.registration)
        self.interceptor: Interceptor | None = None
        self.pause_ms: Callable[[Any, Session], int] | None = None
        """Returns for how long the client of a Produce request shall send nothing, in ms."""
        self.tracing: Tracing | None = None
        self.node = Node(self.store, self.keys, self.topics, self._settings, self.metrics)
        self.replica_wait = ReplicaWait(self.store)
        self.store.decision_wait = self._wait_for_decision
        self.response_memory = ResponseMemory()
        self._add_configs()
        self._add_security()
        self._add_groups_and_transactions()
        self._add_log()
        self._add_produce()
        self._add_fetch()

    def _add_configs(self) -> None:
        store, keys, topics, config = self.store, self.keys, self.topics, self.config
        self.configs = ConfigTable(store, keys)
        self.dynamic_config = DynamicBrokerConfig(
            self.configs,
            config.settings,
            config.topics,
            config.patterns,
            config.node_id,
            topics.use_configs,
        )
        self.auto_creator = TopicAutoCreator(self.node, self.dynamic_config)
        self.config_admin = ConfigAdmin(self.node, self.dynamic_config, config.node_id)

    def _add_security(self) -> None:
        store, keys, start = self.store, self.keys, self.config.settings
        self.audit = Audit(start, {row.key: row.name for row in self.apis})
        self.authorizer = Authorizer(store, keys, start, self.audit)
        self.users = Users(store, keys)
        self.mechanisms = Mechanisms(self.users, start)
        self.quotas = Quotas(store, keys, self.configs)

    def _add_groups_and_transactions(self) -> None:
        self.groups = GroupCoordinator(
            self.node,
            self.notifier,
            self.metrics.rebalances.add,
            self.registration.first_broker_age_ms,
        )
        self.lag_survey = LagSurvey(self.node)
        self.share_offsets = ShareOffsets(self.node, self.groups)
        self.transactions = TransactionCoordinator(self.node)
        self.transactions.on_commit = self._move_redis_groups
        self.hanging_transactions = HangingTransactions(self.node, self.transactions)
        self.enlisted = EnlistedPartitions(self.transactions, lambda: self.store.connection_epoch)

    def _add_log(self) -> None:
        store, keys, config = self.store, self.keys, self.config
        connect = partial(
            AsyncStore.connect,
            config.redis or "",
            client_name=f"korvet-{config.node_id}-epoch",
            timeout_s=config.settings.integer("redis.timeout.ms") / 1000,
        )
        name = f"{config.node_id}/{config.worker}"
        self.epochs = LeaderEpochs(self.node, name, connect, self._abort_lost)
        self.tiered = TieredStorage(
            self.config, self.node, self.replica_wait, lambda: self.registration.cluster_id
        )
        self.memory = self.tiered.memory
        self.append_batcher = AppendBatcher(store, keys)
        self.log_reader = LogReader(
            store,
            self.settings.integer("fetch.cache.bytes"),
            connection_epoch=lambda: store.connection_epoch,
        )
        self.tiered.read_cache = self.log_reader.cache
        self.log_reader.remote = self.tiered.reader
        self.log_reader.use_ranges(store)

    def _add_produce(self) -> None:
        unknown_producers = UnknownProducers()
        appender = PartitionAppender(
            self.node,
            self.append_batcher,
            unknown_producers,
            self.log_reader.cache,
            self.memory,
            self.tiered.demand,
            self.epochs,
        )
        self.produce = ProduceService(
            self.node,
            self.auto_creator,
            self.enlisted,
            appender,
            unknown_producers,
            self.replica_wait,
        )

    def _add_fetch(self) -> None:
        store, keys, topics = self.store, self.keys, self.topics
        self.stream_reads = StreamReads(self.node, self.configs)
        self.offsets_view = OffsetsView(store, keys, self.groups.registry, self.topic_configs)
        topics.add_view(self.offsets_view.topic)
        self.partition_reader = PartitionReader(
            self.node,
            self.log_reader,
            self.stream_reads,
            self.response_memory,
            self.offsets_view,
            self.epochs,
        )
        self.fetch_sessions = FetchSessions(
            self.notifier,
            lambda: self.settings.integer("max.incremental.fetch.session.cache.slots"),
            self.metrics.fetch_session_evictions,
        )
        self.replica_log = ReplicaLog()
        self.share = ShareService(
            self.node,
            self.configs,
            self.log_reader,
            self.produce,
            self.auto_creator,
            self.response_memory,
        )

    async def _abort_lost(self, store: AsyncStore, lost: Collection[str] | None) -> None:
        """Abort the transactions that lost records, before this broker serves any request."""
        node = replace(self.node, store=store, topics=self.topics.through(store))
        await TransactionCoordinator(node).abort_lost(lost)

    async def _move_redis_groups(self, group_id: str, rows: list[Row]) -> None:
        """Move the Redis group to the offsets that a transaction committed."""
        move = not self.stream_reads.is_stream_group(group_id)
        await self.groups.redis_groups.seek(group_id, rows, move=move)

    async def _wait_for_decision(self, key: str, run: str, topics: Collection[str] | None) -> None:
        """Wait as appends to the topics do.

        Without topics: as the settings say, and on a cluster as appends to any topic do. A single
        Redis keeps the order of its writes, and what names a topic waits for its own.
        """
        required = [self.topic_configs.acks_all]
        if topics is not None:
            found = [await self.topics.get(name) for name in topics]
            required += [topic.policy.acks_all for topic in found if topic is not None]
        elif self.store.is_cluster:
            await self.topics.count()  # which reads the table unless it is fresh
            required.append(self.topics.strictest)
        await wait_for_decision(strictest(required), self.replica_wait, key, run)

    def _settings(self) -> Settings:
        return self.dynamic_config.settings

    @property
    def settings(self) -> Settings:
        """The settings in effect."""
        return self.dynamic_config.settings

    @property
    def topic_configs(self) -> TopicConfigs:
        """The topic defaults in effect."""
        return self.dynamic_config.topic_configs
