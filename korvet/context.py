"""The context of a request: the node's services, the API version and the client."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from korvet.admin.alter_configs import ConfigAdmin
from korvet.admin.auto_create import TopicAutoCreator
from korvet.cluster.coordinators import Coordinators
from korvet.config.broker_config import Config
from korvet.config.dynamic import ConfigTable, DynamicBrokerConfig
from korvet.config.setting import StartError
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.errors import ErrorCode
from korvet.fetch.partition_reader import PartitionReader
from korvet.fetch.replica_log import ReplicaLog
from korvet.fetch.response_memory import ResponseMemory
from korvet.groups.coordinator import GroupCoordinator
from korvet.groups.offset_commit import Row
from korvet.groups.offsets_view import OffsetsView
from korvet.groups.share_group import ShareGroupConfig, share_group_config
from korvet.groups.share_offsets import ShareOffsets
from korvet.groups.stream_reads import StreamReads
from korvet.keys import Keys
from korvet.log.append_batcher import AppendBatcher
from korvet.log.reader import LogReader
from korvet.metrics import Metrics
from korvet.produce.append import PartitionAppender
from korvet.produce.service import ProduceService
from korvet.produce.unknown_producers import UnknownProducers
from korvet.remote_log.chunk_cache import chunk_source
from korvet.remote_log.evictor import MemoryEvictor
from korvet.remote_log.manager import RemoteLogManager
from korvet.remote_log.memory import MemoryBudget
from korvet.remote_log.read_limit import ReadLimit
from korvet.remote_log.reader import RemoteLogReader
from korvet.remote_log.store import SegmentStore
from korvet.scripts import broker as broker_scripts
from korvet.security.acl import CLUSTER_NAME, SUPPORTED_BITS, Operation, ResourceType
from korvet.security.audit import Audit, Decision
from korvet.security.authorizer import Authorizer
from korvet.security.mechanisms import Mechanisms
from korvet.security.quotas import Quotas
from korvet.security.session import Session
from korvet.security.users import Users
from korvet.share.acknowledger import Acknowledger
from korvet.share.acquirer import Acquirer
from korvet.share.dead_letters import DeadLetters
from korvet.share.sessions import ShareSession, ShareSessions
from korvet.store.async_store import AsyncStore
from korvet.store.notifications import Notifier
from korvet.store.replica_wait import ReplicaWait
from korvet.topics.lifecycle import Refused
from korvet.topics.table import TopicTable
from korvet.transactions.add_partitions import EnlistedPartitions
from korvet.transactions.coordinator import TransactionCoordinator
from korvet.transactions.hanging import HangingTransactions

if TYPE_CHECKING:
    from korvet.cluster.registration import BrokerRegistration


class Interceptor(Protocol):
    """Answers requests in place of their handlers: fault injection for tests."""

    def __bool__(self) -> bool:
        """Return whether any request is to be intercepted."""

    def response(self, api: Any, request: Any) -> Awaitable[Any] | None:
        """Return the response to a request of `api`, or None to let its handler run."""


class Tracing(Protocol):
    """Calls handlers in spans."""

    def handle(self, row: Any, request: Any, context: "Context") -> Awaitable[Any]:
        """Call the handler of the API and return its response to await."""


class ApiRow(Protocol):
    """Fields of an API table row that ApiVersions uses."""

    @property
    def key(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def versions(self) -> tuple[int, int]: ...


class Services:
    """The long-lived parts of one broker process; every handler works on the same one."""

    def __init__(
        self,
        config: Config,
        store: AsyncStore,
        keys: Keys,
        topics: TopicTable,
        notifier: Notifier,
        registration: "BrokerRegistration",
        apis: Sequence[ApiRow],
        metrics: Metrics,
    ) -> None:
        self.config = config
        self.store = store
        self.keys = keys
        self.topics = topics
        self.notifier = notifier
        self.registration = registration
        self.coordinators = Coordinators(registration)
        self.apis = apis
        self.metrics = metrics
        self.append_batcher = AppendBatcher(store, keys)
        self.memory = MemoryBudget(store, lambda: self.settings)
        self.replica_wait = ReplicaWait(store)
        self.transactions = TransactionCoordinator(store, keys, topics)
        self.configs = ConfigTable(store, keys)
        self.dynamic_config = DynamicBrokerConfig(
            self.configs,
            config.settings,
            config.topics,
            config.patterns,
            config.node_id,
            topics.use_configs,
        )
        self.quotas = Quotas(store, keys, self.configs)
        self.auto_creator = TopicAutoCreator(store, keys, topics, self.dynamic_config)
        self.config_admin = ConfigAdmin(store, keys, topics, self.dynamic_config, config.node_id)
        self.hanging_transactions = HangingTransactions(
            store, keys, self.transactions, lambda: self.settings
        )
        self.audit = Audit(config.settings, {row.key: row.name for row in apis})
        self.authorizer = Authorizer(store, keys, config.settings, self.audit)
        self.users = Users(store, keys)
        self.mechanisms = Mechanisms(self.users, config.settings)
        self.interceptor: Interceptor | None = None
        self.tracing: Tracing | None = None
        self.response_memory = ResponseMemory()
        self.groups = GroupCoordinator(
            store,
            keys,
            lambda: self.settings,
            notifier,
            metrics.rebalances.add,
            registration.first_broker_age_ms,
        )
        self.share_offsets = ShareOffsets(store, keys, topics, self.groups)
        self.transactions.on_commit = self._move_redis_groups
        self.log_reader = LogReader(
            store,
            keys,
            self.settings.integer("fetch.cache.bytes"),
            connection_epoch=lambda: store.connection_epoch,
            is_promoted=lambda key: store.is_promoted(key),
        )
        self.segments: SegmentStore | None = None
        if self.settings.flag("remote.log.storage.system.enable"):
            self._open_remote_log()
        self._ask_metrics()
        self.enlisted = EnlistedPartitions(self.transactions, lambda: store.connection_epoch)
        self.produce = self._produce_service()
        self.stream_reads = StreamReads(store, keys, self.configs, lambda: self.settings)
        self.offsets_view = OffsetsView(store, keys, self.groups.registry, self.topic_configs)
        topics.add_view(self.offsets_view.topic)
        self.partition_reader = PartitionReader(
            store,
            keys,
            topics,
            self.log_reader,
            self.stream_reads,
            self.response_memory,
            lambda: self.settings,
            self.offsets_view,
        )
        self.replica_log = ReplicaLog()
        self._open_share_partitions()

    def _ask_metrics(self) -> None:
        """Let the metrics read at scrape time what the services hold."""
        metrics, cache = self.metrics, self.log_reader.cache
        metrics.strays.ask = lambda: cache.skipped_entries
        metrics.cache_hits.ask = lambda: cache.hits
        metrics.cache_misses.ask = lambda: cache.misses
        metrics.cache_bytes.ask = lambda: {(): cache.held_bytes}
        metrics.response_bytes.ask = lambda: {(): self.response_memory.bytes}
        metrics.pending_bytes.ask = lambda: {(): self.store.pending_bytes}
        metrics.memory_level.ask = lambda: {(): self.memory.level}
        metrics.traffic.max_topics = lambda: self.settings.integer("monitoring.max.topics")
        metrics.before_snapshot.append(self._keep_topics)

    def _keep_topics(self) -> None:
        """Drop the counts of deleted topics, once the topic table is read."""
        if self.topics.cached_version:
            self.metrics.traffic.keep({topic.name for topic in self.topics})

    def _open_share_partitions(self) -> None:
        """Create what serves members of share groups."""
        self.dead_letters = DeadLetters(
            *(self.store, self.keys, self.topics, self.log_reader),
            *(self.produce, self.auto_creator, lambda: self.settings),
        )
        self.share_acquirer = Acquirer(
            *(self.store, self.keys, self.topics, self.log_reader, lambda: self.settings),
            *(self.dead_letters, self.response_memory),
        )
        self.share_acknowledger = Acknowledger(
            *(self.store, self.keys, self.topics, self.share_acquirer, self.dead_letters)
        )

        async def release(session: ShareSession) -> None:
            await self.share_acknowledger.release(session, self.share_config(session.group))

        self.share_sessions = ShareSessions(
            lambda: self.settings.integer("group.share.max.share.sessions"), release
        )

    def share_config(self, group_id: str) -> ShareGroupConfig:
        """Return the configs of a share group in effect."""
        return share_group_config(self.configs, self.settings, group_id)

    def _open_remote_log(self) -> None:
        """Open the store of segments, and let the log reader read from it."""
        url = self.settings.text_of("remote.storage.url")
        if not url:
            raise StartError(
                "remote.log.storage.system.enable needs remote.storage.url: set it to file:///DIR, "
                "or the URL of a bucket."
            )
        rate = "remote.log.manager.fetch.max.bytes.per.second"
        limit = ReadLimit(
            lambda: self.settings.integer(rate), self.settings.integer("remote.log.reader.threads")
        )
        self.segments = SegmentStore(url, self.metrics, limit=limit)
        source = chunk_source(self.segments, self.settings.integer("remote.fetch.cache.bytes"))
        self.metrics.remote_cache_hits.ask = lambda: source.hits
        self.metrics.remote_cache_misses.ask = lambda: source.misses
        self.log_reader.remote = RemoteLogReader(
            self.store,
            self.keys,
            self.segments,
            source,
            self.metrics,
            lambda: self.registration.cluster_id,
            lambda: self.settings.integer("remote.fetch.max.wait.ms") / 1000,
        )

    async def publish_storage(self) -> None:
        """Store remote store and memory budget in Redis: readers of the log need no broker."""
        has_default = self.segments is not None and self.settings.flag("log.remote.storage.enable")
        await self.store.run(
            broker_scripts.set_storage(
                self.keys,
                url=self.segments.public_url if self.segments is not None else "",
                topics="true" if has_default else "false",
                memory=self.settings.integer("local.memory.bytes"),
            )
        )

    def remote_log_manager(self, holder: str) -> RemoteLogManager | None:
        """Return the copy task of tiered storage; None if there is no remote store."""
        if self.segments is None or self.config.read_only:
            return None
        return RemoteLogManager(
            self.store,
            self.keys,
            self.topics,
            self.segments,
            self.replica_wait,
            lambda: self.settings,
            lambda: self.registration.cluster_id,
            holder,
            self.metrics,
        )

    def memory_evictor(self, manager: RemoteLogManager, holder: str) -> MemoryEvictor:
        """Return the task that keeps Redis below local.memory.bytes."""
        return MemoryEvictor(
            *(self.store, self.keys, self.topics, manager, self.memory), holder=holder
        )

    def _produce_service(self) -> ProduceService:
        def settings() -> Settings:
            return self.settings

        unknown_producers = UnknownProducers()
        appender = PartitionAppender(
            self.store,
            self.keys,
            settings,
            self.append_batcher,
            unknown_producers,
            self.log_reader.cache,
            self.metrics,
            self.memory,
        )
        return ProduceService(
            self.store,
            self.keys,
            settings,
            self.topics,
            self.auto_creator.create,
            self.enlisted,
            appender,
            unknown_producers,
            self.replica_wait,
        )

    async def _move_redis_groups(self, group_id: str, rows: list[Row]) -> None:
        """Move the Redis group to the offsets that a transaction committed."""
        move = self.settings.text("group.read.mode") == "offset"
        await self.groups.redis_groups.seek(group_id, rows, move=move)

    @property
    def settings(self) -> Settings:
        """The settings in effect."""
        return self.dynamic_config.settings

    @property
    def topic_configs(self) -> TopicConfigs:
        """The topic defaults in effect."""
        return self.dynamic_config.topic_configs


def _nothing() -> None:
    """Default of `release`: no later request waits for this one."""


class Context(msgspec.Struct, frozen=True):
    """Context of one request."""

    services: Services
    api_key: int
    version: int
    client_id: str | None
    session: Session
    release: Callable[[], None] = _nothing
    """Called once order no longer matters: the connection's next request may begin."""

    @property
    def client_host(self) -> str:
        return self.session.client_host

    async def charge_mutation(self, partitions: int, *, strict_since: int) -> None:
        """Charge created or deleted partitions to the client's controller_mutation_rate.

        Raises Refused if the client is over it, from request version `strict_since` on; an older
        client only waits. KIP-599.
        """
        wait_ms = await self.services.quotas.charge_mutation(
            self.session, self.client_id, partitions, strict=self.version >= strict_since
        )
        if wait_ms and self.version >= strict_since:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"The quota controller_mutation_rate is used up: try again in {wait_ms} ms.",
            )

    @property
    def store(self) -> AsyncStore:
        return self.services.store

    @property
    def keys(self) -> Keys:
        return self.services.keys

    @property
    def topics(self) -> TopicTable:
        return self.services.topics

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.services.transactions

    @property
    def notifier(self) -> Notifier:
        return self.services.notifier

    @property
    def settings(self) -> Settings:
        return self.services.settings

    @property
    def config(self) -> Config:
        return self.services.config

    def allows(
        self, operation: Operation, kind: ResourceType, name: str, *, audit: bool = True
    ) -> bool:
        """Return whether the client may do the operation on the resource.

        `audit` is False if a denial is no error: another right may suffice, or a filter leaves out
        what the client may not see. Raises RulesUnreadable.
        """
        authorizer = self.services.authorizer
        return not authorizer.enabled or authorizer.allows(
            self.session,
            operation,
            kind,
            name,
            api_key=self.api_key,
            client_id=self.client_id,
            audit=audit,
        )

    def allows_on_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether there is a resource of the type on which the client may do this.

        A denial is not audited. Raises RulesUnreadable.
        """
        authorizer = self.services.authorizer
        allowed = authorizer.allows_on_any(self.session, operation, kind)
        if allowed and authorizer.audits_all:
            self.services.audit.record(
                Decision(self.session, self.client_id, self.api_key, operation, kind, "*", allowed)
            )
        return allowed

    def may_describe(self, topic: str, *, audit: bool = True) -> bool:
        """Return whether the client may describe a topic of that name. Raises RulesUnreadable."""
        return self.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic, audit=audit)

    def may_create(self, topic: str) -> bool:
        """Return whether the client may create a topic of that name. Raises RulesUnreadable."""
        return self.allows(
            Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, audit=False
        ) or self.allows(Operation.CREATE, ResourceType.TOPIC, topic)

    def authorized_operations(self, kind: ResourceType, name: str) -> int:
        """Return the operations that the client may do on the resource, as a bit field.

        A client that may not describe the resource gets 0, as in Kafka.
        """
        found = self.services.authorizer.operations(self.session, kind, name)
        return found & SUPPORTED_BITS[kind] if found >> Operation.DESCRIBE & 1 else 0
