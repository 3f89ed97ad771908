"""The log without a broker, for code without an event loop: AsyncKorvet, run inline."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from korvet.library.async_korvet import AsyncKorvet
from korvet.library.record_calls import FETCH_BYTES, Position
from korvet.library.values import (
    Appended,
    Fetched,
    GroupInfo,
    GroupOffset,
    PartitionOffsets,
    Producer,
    Record,
    StoredRecord,
    TopicInfo,
)
from korvet.store.redis_py import InlineStore, iterate_inline, run_inline
from korvet.store.sync_store import SyncStore


class Korvet:
    """The log of one Redis.

    `client` is a `redis.Redis`; its address and credentials are used on connections of the log's
    own. For a Redis Cluster or Sentinels use `Korvet.connect(url)`. An object belongs to one
    thread at a time.

    >>> log = Korvet(redis.Redis.from_url(redis_url))
    >>> log.create_topic("orders", partitions=1).partitions
    1
    >>> log.produce("orders", [Record(b"first", key=b"7"), Record(b"second", key=b"7")])
    [Appended(topic='orders', partition=0, base_offset=..., records=2, duplicate=False)]
    >>> [record.value for record in log.records("orders", 0)]
    [b'first', b'second']
    """

    def __init__(
        self,
        client: Any = None,
        *,
        namespace: str = "korvet",
        settings: Mapping[str, str] | None = None,
        store: InlineStore | None = None,
    ) -> None:
        self._log = AsyncKorvet(
            namespace=namespace,
            settings=settings,
            store=InlineStore.over(client) if store is None else store,
        )

    @classmethod
    def connect(
        cls, url: str, *, namespace: str = "korvet", settings: Mapping[str, str] | None = None
    ) -> Self:
        """Use a Redis URL, which may name Sentinels or a cluster. Connects at the first call."""
        store = InlineStore(SyncStore.connect(url))
        return cls(namespace=namespace, settings=settings, store=store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        run_inline(self._log.close())

    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicInfo:
        """Create a topic; without `partitions` it has as many as num.partitions says."""
        return run_inline(self._log.create_topic(name, partitions, configs))

    def topics(self) -> list[TopicInfo]:
        """List the topics by name."""
        return run_inline(self._log.topics())

    def topic(self, name: str) -> TopicInfo:
        """Return one topic."""
        return run_inline(self._log.topic(name))

    def add_partitions(self, name: str, partitions: int) -> None:
        """Raise a topic's number of partitions to `partitions`."""
        run_inline(self._log.add_partitions(name, partitions))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records, Redis groups and committed offsets."""
        run_inline(self._log.delete_topic(name))

    def delete_records(self, name: str, partition: int, before: int) -> int:
        """Delete a partition's records below an offset; return where the partition now starts.

        >>> log = Korvet.connect(redis_url)
        >>> _ = log.create_topic("trimmed", partitions=1, configs={"offset.mode": "dense"})
        >>> _ = log.produce("trimmed", [Record(b"a"), Record(b"b")])
        >>> log.delete_records("trimmed", 0, before=1)
        1
        """
        return run_inline(self._log.delete_records(name, partition, before))

    def offsets(self, topic: str) -> list[PartitionOffsets]:
        """Return where each partition starts and ends."""
        return run_inline(self._log.offsets(topic))

    def produce(self, topic: str, records: Iterable[Record]) -> list[Appended]:
        """Append records to the partitions that their keys choose, in as few batches as fit."""
        return run_inline(self._log.produce(topic, records))

    def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        producer: Producer | None = None,
        sequence: int = 0,
    ) -> Appended:
        """Append one batch to one partition, all of it or nothing.

        With a producer the batch is idempotent: `sequence` is that of its first record, counted
        per partition from 0. A batch sent again is recognised and stored once.

        >>> log = Korvet.connect(redis_url)
        >>> _ = log.create_topic("payments", partitions=1)
        >>> producer = log.new_producer()
        >>> batch = [Record(b"paid")]
        >>> log.append("payments", 0, batch, producer=producer, sequence=0).duplicate
        False
        >>> log.append("payments", 0, batch, producer=producer, sequence=0).duplicate
        True
        """
        call = self._log.append(topic, partition, records, producer=producer, sequence=sequence)
        return run_inline(call)

    def new_producer(self) -> Producer:
        """Allocate the id of a new idempotent producer."""
        return run_inline(self._log.new_producer())

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        committed: bool = False,
    ) -> Fetched:
        """Read records from an offset on, about `max_bytes` of them; none at the end.

        `committed` leaves out aborted transactions, and ends at the last stable offset.
        """
        call = self._log.fetch(topic, partition, offset, max_bytes=max_bytes, committed=committed)
        return run_inline(call)

    def records(
        self,
        topic: str,
        partition: int,
        start: int | None = None,
        stop: int | None = None,
        *,
        committed: bool = False,
    ) -> Iterator[StoredRecord]:
        """Iterate a partition's records in [start, stop), to its present end by default."""
        return iterate_inline(self._log.records(topic, partition, start, stop, committed=committed))

    def find_offset(self, topic: str, partition: int, position: Position) -> int:
        """Return the offset at a position; a time finds the first record at or after it."""
        return run_inline(self._log.find_offset(topic, partition, position))

    def groups(self) -> list[GroupInfo]:
        """List the consumer groups by name."""
        return run_inline(self._log.groups())

    def committed(self, group: str) -> list[GroupOffset]:
        """Return what a group has committed, by topic and partition."""
        return run_inline(self._log.committed(group))

    def commit(
        self, group: str, offsets: Mapping[tuple[str, int], int], metadata: str = ""
    ) -> None:
        """Commit offsets by (topic, partition) for a group that has no members.

        >>> log = Korvet.connect(redis_url)
        >>> _ = log.create_topic("clicks", partitions=1)
        >>> _ = log.produce("clicks", [Record(b"a"), Record(b"b")])
        >>> log.commit("totals", {("clicks", 0): log.offsets("clicks")[0].earliest})
        >>> [(row.topic, row.partition, row.lag) for row in log.committed("totals")]
        [('clicks', 0, 2)]
        """
        run_inline(self._log.commit(group, offsets, metadata))

    def reset(self, group: str, topic: str, position: Position) -> dict[int, int]:
        """Commit the offsets at a position in every partition; return them by partition."""
        return run_inline(self._log.reset(group, topic, position))

    def delete_group(self, group: str) -> None:
        """Delete a group that has no members, with its committed offsets."""
        run_inline(self._log.delete_group(group))
