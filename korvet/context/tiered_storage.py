"""The parts of tiered storage in one broker, and what readers without a broker need of it."""

from collections.abc import Callable
from dataclasses import dataclass

from korvet.base import logfmt
from korvet.config.broker_config import Config
from korvet.config.setting import StartError
from korvet.log.read_cache import ReadCache
from korvet.remote_log.chunk_cache import chunk_source
from korvet.remote_log.copy_demand import CopyDemand
from korvet.remote_log.disk_cache import open_store
from korvet.remote_log.evictor import MemoryEvictor
from korvet.remote_log.manager import RemoteLogManager
from korvet.remote_log.manifest import REMOTE_STORAGE_URL
from korvet.remote_log.memory import MemoryBudget, SharesReader
from korvet.remote_log.reader import RemoteLogReader
from korvet.remote_log.store import ReadLimit, RemoteStorageError, SegmentStore
from korvet.store.replica_wait import ReplicaWait
from korvet.topics.node import Node

logger = logfmt.get("context.tiered_storage")


@dataclass(eq=False, repr=False)
class TieredStorage:
    """The memory budget, and the store of segments if remote.log.storage.system.enable is set."""

    config: Config
    node: Node
    replica_wait: ReplicaWait
    cluster_id: Callable[[], str]

    def __post_init__(self) -> None:
        self.memory = MemoryBudget(
            self.node.store, self.node.settings, SharesReader(self.node.store, self.node.topics)
        )
        self.read_cache: ReadCache | None = None
        """The broker's batch cache: what is copied is taken from it."""
        self.demand = CopyDemand(self._cache_bytes, max(self.config.workers, 1))
        self.segments: SegmentStore | None = None
        self.reader: RemoteLogReader | None = None
        if self.node.settings().flag("remote.log.storage.system.enable"):
            self.segments = self._open_segments(self.config)
            self.reader = self._open_reader(self.segments)

    def _cache_bytes(self) -> int:
        return self.read_cache.capacity if self.read_cache is not None else 0

    def _open_segments(self, config: Config) -> SegmentStore:
        start = self.node.settings()
        url = start.text_of("remote.storage.url")
        if not url:
            raise StartError(
                "remote.log.storage.system.enable needs remote.storage.url: set it to file:///DIR, "
                "or the URL of a bucket."
            )
        rate = "remote.log.manager.fetch.max.bytes.per.second"
        limit = ReadLimit(
            lambda: self.node.settings().integer(rate),
            start.integer("remote.log.reader.threads"),
            start.integer("remote.log.reader.max.pending.tasks"),
        )
        try:
            return open_store(
                url, start, config.data_dir, config.workers, metrics=self.node.metrics, limit=limit
            )
        except RemoteStorageError as error:
            raise StartError(f"remote.storage.url {error}.") from None

    def _open_reader(self, segments: SegmentStore) -> RemoteLogReader:
        source = chunk_source(segments, self.node.settings().integer("remote.fetch.cache.bytes"))
        self.node.metrics.remote_cache_hits.ask = lambda: source.hits
        self.node.metrics.remote_cache_misses.ask = lambda: source.misses
        return RemoteLogReader(
            self.node.store,
            segments,
            source,
            self.node.metrics,
            self.cluster_id,
            lambda: self.node.settings().integer("remote.fetch.max.wait.ms") / 1000,
            lambda: self.node.store.connection_epoch,
            lambda: self.node.settings().integer("remote.log.index.file.cache.total.size.bytes"),
        )

    async def publish(self) -> None:
        """Store remote store and memory budget in Redis: readers of the log need no broker."""
        settings, segments = self.node.settings(), self.segments
        await self._compare_url()
        has_default = segments is not None and settings.flag("log.remote.storage.enable")
        await self.node.store.run(
            self.node.keys.broker_set_storage(
                url=segments.public_url if segments is not None else "",
                topics="true" if has_default else "false",
                memory=settings.integer("local.memory.bytes"),
            )
        )

    async def _compare_url(self) -> None:
        """Log a warning if other brokers have stored another URL."""
        found = await self.node.store.command("HGET", self.node.keys.cluster(), REMOTE_STORAGE_URL)
        stored = found.decode() if found else ""
        own = self.segments.public_url if self.segments is not None else "none"
        if stored and own and own != stored:
            logger.warning(
                "remote.storage.url differs from the stored one",
                stored=stored,
                own=own,
                advice="give all brokers the same: this one reads no segments of the other store",
            )

    def manager(self, holder: str) -> RemoteLogManager | None:
        """Return the task that copies to the remote store; None if there is no store."""
        if self.segments is None:
            return None
        return RemoteLogManager(
            self.node,
            self.segments,
            self.replica_wait,
            self.cluster_id,
            holder,
            self.demand,
            self.memory,
            self.read_cache,
        )

    def evictor(self, manager: RemoteLogManager, holder: str) -> MemoryEvictor:
        """Return the task that keeps Redis below local.memory.bytes."""
        return MemoryEvictor(self.node, manager, self.memory, holder=holder)
