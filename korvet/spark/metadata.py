"""Read topic metadata and partition offsets from Redis, on the driver.

Rules
- A request for all partitions is one round trip.
- Resolve offsets once, on the driver: tasks receive plain numbers.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import STORED, Settings, with_stored
from korvet.log.accept_server import accept_by
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import FindTimestampReply, ListOffsetsReply, NumberEntriesReply
from korvet.scripts.keys import Keys, Partition
from korvet.spark.errors import TopicChanged, UnknownTopic
from korvet.spark.options import Connection, Selection
from korvet.spark.partitions import (
    OffsetRange,
    PartitionBounds,
    PartitionLog,
    partitions_of,
    raise_if_gone,
)
from korvet.store.redis_py import InlineStore, run_inline
from korvet.store.sync_store import SyncStore
from korvet.topics.table import VERSION_FIELD, Topic, read_topic

FIRST_CONNECT_TIMEOUT_S = 3.0
"""Fail a new query after this time if Redis cannot be reached."""
RECONNECT_TIMEOUT_S = 60.0
"""Fail a task or a running stream after Redis was away this long, as Kafka's clients do."""
MAX_ATTEMPTS = 10
"""Max reads of the topic list if topics are deleted or created again meanwhile."""

if TYPE_CHECKING:
    from korvet.remote_log.sync_reader import SyncSegmentReader


T = TypeVar("T")
R = TypeVar("R", ListOffsetsReply, FindTimestampReply, NumberEntriesReply)


class MetadataClient:
    """Topic metadata and offsets as stored in Redis. A context manager."""

    def __init__(self, connection: Connection, store: SyncStore | None = None) -> None:
        self.keys = Keys(connection.namespace)
        self.store = store or SyncStore.connect(connection.redis)
        accept = accept_by(self.keys, partial(InlineStore.connect, connection.redis))
        self.store.accept_servers(lambda run: run_inline(accept(run)))
        self.store.patience_s = FIRST_CONNECT_TIMEOUT_S
        self._remote_storage = connection.remote_storage
        self._stored: TopicConfigs | None = None

    def with_reconnect(self) -> Self:
        """Tolerate RECONNECT_TIMEOUT_S without Redis from now on, and return self."""
        self.store.patience_s = RECONNECT_TIMEOUT_S
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def open_segments(self) -> "SyncSegmentReader":
        """Open the remote store, or raise RemoteStorageError if its URL is not known."""
        from korvet.remote_log.sync_reader import SyncSegmentReader

        return SyncSegmentReader.open(self.store, self.keys, self._remote_storage)

    def local_starts(self, ranges: Sequence[OffsetRange]) -> list[int]:
        """Return for each range the offset in it below which Redis has no records."""
        logs = (each.log.handle(self.keys).log for each in ranges)
        starts = self.store.commands([("HGET", key, "local_start") for key in logs])
        return [each.local_edge(found) for each, found in zip(ranges, starts, strict=True)]

    def _configs(self) -> TopicConfigs:
        """Return the defaults of topics, as far as the brokers stored them."""
        if self._stored is None:
            found = self.store.command("HMGET", self.keys.cluster(), *STORED)
            self._stored = TopicConfigs(with_stored(Settings(), found))
        return self._stored

    def topics(self) -> dict[str, Topic]:
        """Return all topics by name."""
        flat = self.store.command("HGETALL", self.keys.topics())
        found: dict[str, Topic] = {}
        for field, raw in zip(flat[::2], flat[1::2], strict=True):
            name = field.decode()
            topic = (
                None if name == VERSION_FIELD else read_topic(self.keys, name, raw, self._configs())
            )
            if topic is not None:
                found[name] = topic
        return dict(sorted(found.items()))

    def topic(self, name: str) -> Topic:
        """Return the topic of this name, or raise UnknownTopic."""
        raw = self.store.command("HGET", self.keys.topics(), name)
        topic = None if raw is None else read_topic(self.keys, name, raw, self._configs())
        if topic is None:
            raise _unknown_topic(name, self.topics())
        return topic

    def logs(self, selection: Selection) -> list[PartitionLog]:
        """Return the selected partitions; raise UnknownTopic if a named one does not exist."""
        known = self.topics()
        if selection.pattern is not None:
            matches = re.compile(selection.pattern).search  # like Kafka: anywhere in the name
            return [part for name in known if matches(name) for part in partitions_of(known[name])]
        found: list[PartitionLog] = []
        assigned = selection.assigned
        for name in assigned if assigned is not None else selection.topics:
            if name not in known:
                raise _unknown_topic(name, known)
            parts = partitions_of(known[name])
            if assigned is None:
                found += parts
                continue
            for number in assigned[name]:
                if not 0 <= number < len(parts):
                    raise UnknownTopic(
                        f"Topic {name!r} has {len(parts)} partitions, and no partition {number}."
                    )
                found.append(parts[number])
        return found

    def retry_on_change(self, selection: Selection, ask: Callable[[list[PartitionLog]], T]) -> T:
        """Return `ask(logs)` for the selected partitions; repeat it if a topic changed meanwhile.

        A topic that is deleted or created again makes `ask` raise TopicChanged.
        """
        for _ in range(MAX_ATTEMPTS - 1):
            logs = self.logs(selection)
            try:
                return ask(logs)
            except TopicChanged:
                continue
        return ask(self.logs(selection))

    def _run_each(
        self, logs: Sequence[PartitionLog], call: Callable[[Partition], Call[R]]
    ) -> list[R]:
        """Run a call for each log in one pipeline; raise TopicChanged if a log is gone."""
        replies = self.store.run_many(call(part.handle(self.keys)) for part in logs)
        for part, reply in zip(logs, replies, strict=True):
            raise_if_gone(part, reply.error)
        return replies

    def find_timestamp(self, logs: Sequence[PartitionLog], timestamp: int) -> list[int]:
        """Return for each log an offset below which every appended record is older (ms)."""
        replies = self._run_each(logs, lambda handle: handle.find_timestamp(timestamp=timestamp))
        return [reply.offset for reply in replies]

    def bounds(
        self, logs: Sequence[PartitionLog], *, committed: bool = False
    ) -> list[PartitionBounds]:
        """Return each partition's offsets; `committed`: up to the last stable offset.

        Foreign entries are numbered first, in as many calls as it takes.
        """
        left = list(logs)
        while left:
            numbered = self._run_each(left, Partition.number_entries)
            left = [part for part, reply in zip(left, numbered, strict=True) if reply.more]
        replies = self._run_each(logs, Partition.list_offsets)
        # In time mode a transaction starts at the log end of that moment, before its first record.
        nexts = [reply.stable if committed else reply.next for reply in replies]
        return [
            PartitionBounds(
                start=reply.start,
                first=min(reply.first, end),
                next=end,
                end=max(reply.next, end),
                newest=reply.newest,
                coming=max(reply.coming, end),
                epoch=reply.epoch,
                epochs=reply.epochs,
            )
            for reply, end in zip(replies, nexts, strict=True)
        ]

    def advance(
        self, ranges: Sequence[OffsetRange], records: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Skip records in each range: return the offset after them and how many were skipped.

        In segments of a log in time mode this counts whole chunks, of about 64 KiB.
        """
        found = self._advance_in_segments(ranges, records)

        def is_unfinished(n: int) -> bool:
            at, counted = found[n]
            return at < ranges[n].end and counted < records[n]

        left = list(filter(is_unfinished, range(len(ranges))))
        while left:
            replies = self.store.run_many(
                ranges[n]
                .log.handle(self.keys)
                .skip_records(
                    offset=found[n][0], records=records[n] - found[n][1], end=ranges[n].end
                )
                for n in left
            )
            asked, left = left, []
            for n, reply in zip(asked, replies, strict=True):
                raise_if_gone(ranges[n].log, reply.error)
                before, counted = found[n]
                found[n] = reply.offset, counted + reply.records
                # One call counts only part of the entries between two rows of the index.
                if before < reply.offset and is_unfinished(n):
                    left.append(n)
        return found

    def _advance_in_segments(
        self, ranges: Sequence[OffsetRange], records: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Skip records that left Redis, as `advance` does."""
        found = [(each.start, 0) for each in ranges]
        edges = self.local_starts(ranges) if ranges else []
        remote = [n for n, edge in enumerate(edges) if edge > ranges[n].start]
        if not remote:
            return found
        with self.open_segments() as reader:
            for n in remote:
                part, start = ranges[n].log, ranges[n].start
                found[n] = reader.skip_records(
                    part.handle(self.keys), start, edges[n], records[n], exact=part.mode != "time"
                )
        return found

    def count(self, ranges: Sequence[OffsetRange]) -> list[int]:
        """Return the number of records in each range."""
        return [records for _, records in self.advance(ranges, [2**52] * len(ranges))]


def _unknown_topic(name: str, known: Iterable[str]) -> UnknownTopic:
    names = list(known)
    hint = f"; there are {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}."
    if not names:
        hint = ": this Redis has no topics in this namespace."
    return UnknownTopic(f"There is no topic {name!r}{hint}")
