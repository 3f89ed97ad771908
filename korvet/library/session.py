"""The state that the library's calls share: store, settings, table of topics; calls on topics."""

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
from korvet.library.values import KorvetError, NoTopic, PartitionOffsets, TopicInfo
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
from korvet.topics.lifecycle import (
    Refused,
    add_partitions,
    create_topic,
    delete_topic,
    plan_topic,
    refuse_colliding,
)
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
            raise NoTopic(name, names)
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


class TopicCalls(Session):
    """Create, list, grow and delete topics."""

    async def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicInfo:
        """Create a topic; without `partitions` it has as many as num.partitions says."""
        await self.refresh()
        count = self.settings.integer("num.partitions") if partitions is None else partitions
        with refusals():
            definition = plan_topic(name, count, configs or {}, self.topic_configs)
            if await self.topic_table.get(name) is None:
                refuse_colliding(self.topic_table.find_colliding(name), name)
            error = await create_topic(self.store, self.keys, name, definition)
        check(error, f"Topic {name!r} exists already.")
        self.topic_table.invalidate()
        return await self.topic(name)

    async def topics(self) -> list[TopicInfo]:
        """List the topics by name."""
        await self.refresh()
        return [_info(topic) for topic in await self.topic_table.all()]

    async def topic(self, name: str) -> TopicInfo:
        """Return one topic."""
        return _info(await self.find_topic(name))

    async def add_partitions(self, name: str, partitions: int) -> None:
        """Raise a topic's number of partitions to `partitions`."""
        topic = await self.find_topic(name)
        if partitions <= topic.partitions:
            raise KorvetError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {name!r} has {topic.partitions} partitions: give a higher number.",
            )
        with refusals():
            done = await add_partitions(self.store, self.keys, topic, partitions)
        self.topic_table.invalidate()
        if not done:
            raise KorvetError(
                ErrorCode.REQUEST_TIMED_OUT, f"Topic {name!r} changed meanwhile: try again."
            )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records, Redis groups and committed offsets."""
        topic = await self.find_topic(name)
        with refusals():
            error = await delete_topic(self.store, self.keys, topic)
        self.topic_table.invalidate()
        check(error, f"There is no topic {name!r}.")

    async def delete_records(self, name: str, partition: int, before: int) -> int:
        """Delete a partition's records below an offset; return where the partition now starts."""
        topic = await self.find_topic(name)
        check_partition(topic, partition)
        if not topic.policy.delete:
            raise KorvetError(
                ErrorCode.POLICY_VIOLATION,
                f"Topic {name!r} is compacted only: its cleanup.policy lacks delete.",
            )
        again = before
        while again >= 0:  # a long range is deleted by several calls
            reply = await self.store.run(topic.partition(partition).delete_records(before=again))
            check(reply.error, f"Partition {partition} of {name!r} cannot be trimmed to {before}")
            again = reply.again
        return reply.start

    async def offsets(self, topic: str) -> list[PartitionOffsets]:
        """Return where each partition starts and ends."""
        found = await self.find_topic(topic)
        replies = await self.store.run_many(
            [found.partition(number).list_offsets() for number in range(found.partitions)]
        )
        return [
            PartitionOffsets(
                partition=number,
                earliest=reply.first if self.reader.remote else reply.local_first,
                latest=reply.next,
                last_stable=reply.next if reply.stable < 0 else reply.stable,
                records=reply.records,
                bytes=reply.bytes,
                newest_timestamp_ms=reply.newest,
            )
            for number, reply in enumerate(replies)
        ]


def _info(topic: Topic) -> TopicInfo:
    policy = topic.policy
    return TopicInfo(
        topic.name,
        topic.id,
        topic.partitions,
        policy.storage_format,
        policy.offset_mode,
        topic.configs,
    )
