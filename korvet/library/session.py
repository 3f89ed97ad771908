"""The state that the library's calls share: store, settings, table of topics."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any, cast
from weakref import WeakSet

from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.config.dynamic import ConfigTable
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import STORED, Settings, with_stored
from korvet.groups.coordinator import GroupCoordinator
from korvet.library.batches import Batcher
from korvet.library.values import KorvetError
from korvet.log.accept_server import servers_accepted
from korvet.log.reader import LogReader
from korvet.remote_log.chunk_cache import InlineChunks, InlineSegmentStore, chunk_source
from korvet.remote_log.manifest import CLUSTER_ID
from korvet.remote_log.reader import RemoteLogReader
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.notifications import Notifier
from korvet.store.redis_py import InlineStore, LibraryStore
from korvet.topics.lifecycle import Refused
from korvet.topics.node import Node
from korvet.topics.table import PlainTable, Topic, TopicTable

NO_BROKER = -1
"""A node id that has no settings."""
_SETTINGS_MAX_AGE_S = 1.0


class Session:
    """A namespace of a Redis, for the library and the command line.

    Settings are those changed for all brokers, over `settings`. They and the table of topics are
    read again once they are older than 1 s.
    """

    url = ""
    """The URL of an AsyncStore."""
    notifier: Notifier | None = None
    """The notifier that readers share; without one each opens a connection."""

    def __init__(
        self,
        store: LibraryStore,
        namespace: str,
        settings: Mapping[str, str] | Settings | None = None,
    ) -> None:
        # The log's own code names AsyncStore and uses what LibraryStore has.
        self.store = cast(AsyncStore, store)
        self.keys = Keys(namespace)
        self.settings = settings if isinstance(settings, Settings) else Settings(settings)
        self.topic_configs = TopicConfigs(self.settings)
        self.topic_table: TopicTable = PlainTable(self.store, self.keys, self.topic_configs)
        self.reader = LogReader(self.store, connection_epoch=servers_accepted)
        self.node = Node(self.store, self.keys, self.topic_table, lambda: self.settings, Metrics())
        self.ticks_ms = 0
        """`present_ms` of this process's ticks of groups; see `Presence`."""
        self.coordinator = GroupCoordinator(self.node, present_ms=lambda: self.ticks_ms)
        self.batchers: dict[str, Batcher] = {}
        self.greeted: WeakSet[Any] = WeakSet()
        """Sockets of callers' connections whose servers are accepted (log/accept_server.py)."""
        self._started_with = self.settings
        self.dynamic_configs = ConfigTable(self.store, self.keys)
        self._fresh_until = 0.0
        self._asked_for_stored = False

    async def refresh(self) -> None:
        """Read the settings that were changed while brokers run, unless they are fresh."""
        if monotonic() < self._fresh_until:
            return
        found = not self._asked_for_stored and await self._use_stored_settings()
        if await self.dynamic_configs.refresh() or found:
            self.settings = self.dynamic_configs.overlay(self._started_with, NO_BROKER)
            self.topic_configs = TopicConfigs(self.settings)
            self.topic_table.use_configs(self.topic_configs)
        self._fresh_until = monotonic() + _SETTINGS_MAX_AGE_S
        is_enabled = self.settings.flag("remote.log.storage.system.enable")
        if is_enabled and self.reader.remote is None:
            await self._open_segments()

    def forget_settings(self) -> None:
        """Read the settings again before the next call."""
        self._fresh_until = 0.0

    async def _use_stored_settings(self) -> bool:
        """Take the remote store that brokers stored in Redis, unless the settings name one."""
        self._asked_for_stored = True
        values = await self.store.command("HMGET", self.keys.cluster(), *STORED)
        before = self._started_with
        if any(value is not None for value in values):
            self._started_with = with_stored(before, values)
        return self._started_with is not before

    async def _open_segments(self) -> None:
        """Let reads below the first record in Redis take segments of remote.storage.url."""
        url = self.settings.text_of("remote.storage.url")
        found = await self.store.command("HGET", self.keys.cluster(), CLUSTER_ID) if url else None
        if not url or found is None:
            return
        is_inline = isinstance(self.store, InlineStore)
        try:
            segments = (InlineSegmentStore if is_inline else SegmentStore)(url, create=False)
        except RemoteStorageError:
            return  # a directory of another machine: reads below the local start say what to set
        cluster_id = found.decode()
        capacity = self.settings.integer("remote.fetch.cache.bytes")
        source = InlineChunks(segments) if is_inline else chunk_source(segments, capacity)
        self.reader.remote = RemoteLogReader(
            self.store,
            segments,
            source,
            self.node.metrics,
            lambda: cluster_id,
            lambda: inf,
            servers_accepted,
        )

    async def find_topic(self, name: str) -> Topic:
        """Return the topic. KorvetError names the topics there are."""
        await self.refresh()
        found = await self.topic_table.get(name)
        if found is None:
            names = ", ".join(topic.name for topic in (await self.topic_table.all())[:10])
            raise KorvetError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no topic {name!r}; there are: {names or 'none'}.",
            )
        return found


@contextmanager
def refusals() -> Iterator[None]:
    """Raise what a change of topics refuses as a KorvetError."""
    try:
        yield
    except Refused as refused:
        raise KorvetError(refused.error, refused.reason) from None


def check(error: int, reason: str) -> None:
    """Raise a KorvetError with the code's own sentence if there is an error."""
    if error:
        code = ErrorCode(error)
        raise KorvetError(code, reason if reason.endswith(".") else f"{reason}: {code.message}")


def check_partition(topic: Topic, partition: int) -> None:
    """Raise a KorvetError unless the topic has the partition."""
    if not 0 <= partition < topic.partitions:
        raise KorvetError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{topic.name} has partitions 0 to {topic.partitions - 1}, not {partition}.",
        )
