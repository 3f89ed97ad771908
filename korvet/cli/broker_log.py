"""Read and append records at brokers, with the calls that commands make on a log in Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from time import time
from typing import Any, NamedTuple, TypeVar

from korvet.admin import requests as admin
from korvet.admin.config_edits import ConfigResourceType
from korvet.base.errors import ErrorCode
from korvet.cli.kafka_client import check
from korvet.cli.kafka_requests import GROUP, Requests, Via, ask_coordinator, find_topic, on_log
from korvet.config.setting import StartError
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.batches import Batcher, encode_batch
from korvet.library.values import Fetched, KorvetError, Record, StoredRecord
from korvet.log.position import EARLIEST, LATEST, Position
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from korvet.wire.records import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    read_header,
    records_of,
)

FETCH_BYTES = 1 << 20
MAX_BATCH_BYTES = 1 << 20
"""Bytes that Kafka's default max.message.bytes allows."""
MAX_WAIT_MS = 500
_TIMES = {EARLIEST: -2, LATEST: -1}
_CONTROL, _TRANSACTIONAL = 0x20, 0x10
_ATTEMPTS, _PAUSE_S = 50, 0.2
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)
SHAPE = ("storage.format", "offset.mode")
_AT_ONCE = 100
"""Topics that one request describes."""


class Ends(NamedTuple):
    """The ends of a partition; `records` is the number of its offsets."""

    partition: int
    earliest: int
    latest: int

    @property
    def records(self) -> int:
        return self.latest - self.earliest


class Committed(NamedTuple):
    """The committed offset of a group in a partition."""

    topic: str
    partition: int
    offset: int
    metadata: str


class BrokerTopic(NamedTuple):
    """A topic, with the broker of each partition."""

    name: str
    id: Any
    leaders: Mapping[int, int]
    replicas: int
    """How many replicas a partition has."""

    @property
    def partitions(self) -> int:
        return len(self.leaders)


class CreatedTopic(NamedTuple):
    """A topic that was created; `offset_mode` is empty if the broker names none."""

    partitions: int
    offset_mode: str


class BrokerLog:
    """The topics and groups of brokers."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._topics: dict[str, BrokerTopic] = {}
        self._batcher = Batcher()

    async def topic(self, name: str) -> BrokerTopic:
        """Return one topic. Raises StartError if there is none."""
        if name not in self._topics:
            found = await find_topic(self._requests, name)
            leaders = {row.partition_index: row.leader_id for row in found.partitions}
            replicas = max((len(row.replica_nodes) for row in found.partitions), default=0)
            self._topics[name] = BrokerTopic(name, found.topic_id, leaders, replicas)
        return self._topics[name]

    async def topics(self) -> list[str]:
        """Return the names of the topics."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        rows = (await self._requests.call(request)).topics
        return [row.name for row in rows if not row.is_internal]

    async def shapes(self, names: Sequence[str]) -> dict[str, tuple[object, ...]]:
        """Return the format and the offset mode of each topic."""
        found = await self.configs(names, SHAPE)
        values = {name: {row[0]: row[1] for row in rows} for name, rows in found.items()}
        return {name: tuple(map(values.get(name, {}).get, SHAPE)) for name in names}

    async def configs(
        self, names: Sequence[str], only: Sequence[str] | None = None
    ) -> dict[str, list[tuple[str, str | None, int]]]:
        """Return name, value and source of each topic's configs, or of some of them."""
        rows: dict[str, list[tuple[str, str | None, int]]] = {}
        for at in range(0, len(names), _AT_ONCE):
            asked = admin.describe_configs(
                ConfigResourceType.TOPIC,
                names[at : at + _AT_ONCE],
                None if only is None else list(only),
            )
            found = await self._requests.call(asked)
            for row in found.results:
                if only is None:
                    check(row)
                rows[row.resource_name] = [
                    (config.name, config.value, config.config_source) for config in row.configs
                ]
        return rows

    async def create_topic(
        self,
        name: str,
        partitions: int | None,
        configs: Mapping[str, str],
        replication_factor: int = -1,
        *,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic; without `partitions` it has as many as num.partitions says."""
        count = -1 if partitions is None else partitions
        request = admin.create_topic(
            name, count, configs, replication_factor, validate_only=validate_only
        )
        (created,) = (await self._requests.call(request)).topics
        check(created)
        values = {row.name: row.value for row in created.configs or ()}
        return CreatedTopic(created.num_partitions, values.get("offset.mode") or "")

    async def add_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Raise a topic's number of partitions to `count`."""
        answer = await self._requests.call(
            admin.add_partitions(name, count, validate_only=validate_only)
        )
        check(answer.results[0])

    async def delete_topic(self, name: str) -> None:
        """Delete a topic: this one, if the brokers know ids, and none that was created since."""
        topic = await self.topic(name)
        answer = await self._requests.call(admin.delete_topic(name, topic.id))
        check(answer.responses[0])

    async def delete_group(self, name: str) -> None:
        """Delete a group that has no members."""
        request = DeleteGroupsRequest(groups_names=[name])
        answer = await ask_coordinator(
            self._requests, GROUP, name, request, lambda row: row.results[0].error_code
        )
        (found,) = answer.results
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise StartError(f"There is no group {name!r}: `korvet groups list` names them.")
        check(found)

    async def offsets(self, name: str) -> list[Ends]:
        """Return where each partition begins and ends."""
        topic = await self.topic(name)
        first, following = [
            await self._offsets_at(topic, topic.leaders, at) for at in _TIMES.values()
        ]
        return [Ends(number, first[number], following[number]) for number in sorted(first)]

    async def find_offset(self, name: str, number: int, position: Position) -> int:
        """Return the offset at a position; a time finds the first record at or after it."""
        if isinstance(position, int):
            return position
        topic = await self.topic(name)
        if isinstance(position, datetime):
            found = await self._offset_at(topic, number, int(position.timestamp() * 1000))
            return found if found >= 0 else await self._offset_at(topic, number, _TIMES[LATEST])
        return await self._offset_at(topic, number, _TIMES[position])

    async def _offset_at(self, topic: BrokerTopic, number: int, timestamp: int) -> int:
        return (await self._offsets_at(topic, [number], timestamp))[number]

    async def _offsets_at(
        self, topic: BrokerTopic, numbers: Iterable[int], timestamp: int
    ) -> dict[int, int]:
        """Return the offset of a time in each of the partitions, by a request to each leader.

        Partitions whose leader has changed, or is not ready, are asked for again.
        """
        offsets: dict[int, int] = {}
        left = set(numbers)
        for attempt in range(_ATTEMPTS):
            for leader in {topic.leaders[number] for number in left}:
                rows = [
                    ListOffsetsPartition(partition_index=number, timestamp=timestamp)
                    for number in sorted(left)
                    if topic.leaders[number] == leader
                ]
                request = ListOffsetsRequest(
                    replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=rows)]
                )
                for row in (await self._requests.call(request, leader)).topics[0].partitions:
                    if row.error_code not in _MOVED or attempt == _ATTEMPTS - 1:
                        check(row)
                        offsets[row.partition_index] = row.offset
            left -= offsets.keys()
            if not left:
                break
            topic = await self._moved(topic.name)
        return offsets

    async def _moved(self, name: str) -> BrokerTopic:
        """Return a topic again after a pause: other brokers lead its partitions now."""
        self._topics.pop(name, None)
        await asyncio.sleep(_PAUSE_S)
        return await self.topic(name)

    async def fetch(
        self,
        name: str,
        number: int,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        committed: bool = False,
    ) -> Fetched:
        """Read records from an offset on; none at the end. `committed` omits aborted ones."""
        topic = await self.topic(name)
        found = await self._fetch(topic, {number: offset}, 0, max_bytes, committed=committed)
        (part,) = found.responses[0].partitions
        check(part)
        records: list[StoredRecord] = []
        following, aborted = offset, set[int]()
        begins = sorted(
            ((row.first_offset, row.producer_id) for row in part.aborted_transactions or ()),
            reverse=True,
        )
        for header, batch in _batches(_joined(part.records)):
            following = max(following, header.base_offset + header.last_offset_delta + 1)
            while begins and begins[-1][0] < following:
                aborted.add(begins.pop()[1])
            if header.attributes & _CONTROL:
                aborted.discard(header.producer_id)
            elif not (header.attributes & _TRANSACTIONAL and header.producer_id in aborted):
                rows = records_of(batch)
                records += [StoredRecord(name, number, *row) for row in rows if row[0] >= offset]
        return Fetched(records, following, part.high_watermark, part.last_stable_offset)

    async def wait(self, name: str, offsets: Mapping[int, int]) -> None:
        """Wait until a partition has records from its offset on, at most MAX_WAIT_MS."""
        topic = await self.topic(name)
        waits = [
            asyncio.ensure_future(self._fetch(topic, some, MAX_WAIT_MS, 1))
            for some in (
                {number: at for number, at in offsets.items() if topic.leaders[number] == broker}
                for broker in set(topic.leaders.values())
            )
            if some
        ]
        _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            with suppress(KorvetError):
                await each

    async def _fetch(
        self,
        topic: BrokerTopic,
        offsets: Mapping[int, int],
        wait_ms: int,
        max_bytes: int,
        *,
        committed: bool = False,
    ) -> Any:
        parts = [
            FetchPartition(partition=number, fetch_offset=at, partition_max_bytes=max_bytes)
            for number, at in offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic.name, topic_id=topic.id, partitions=parts)],
        )
        answer = await self._requests.call(request, topic.leaders[next(iter(offsets))])
        check(answer)
        return answer

    async def delete_records(self, name: str, number: int, before: int) -> int:
        """Delete a partition's records below an offset; return where the partition now starts."""
        topic = await self.topic(name)
        request = admin.delete_records(name, number, before)
        answer = await self._requests.call(request, topic.leaders[number])
        (found,) = answer.topics[0].partitions
        check(found)
        return int(found.low_watermark)

    async def committed(self, group: str, *, stable: bool = False) -> list[Committed]:
        """Return what a group has committed; `stable`: once no transaction may change it."""
        one = OffsetFetchRequestGroup(group_id=group, topics=None)
        request = OffsetFetchRequest(
            group_id=group, topics=None, groups=[one], require_stable=stable
        )
        answer = await ask_coordinator(
            self._requests,
            GROUP,
            group,
            request,
            lambda row: (row.groups[0] if row.groups else row).error_code,
        )
        found = answer.groups[0] if answer.groups else answer
        check(found)
        for row in (row for topic in found.topics for row in topic.partitions if stable):
            check(row)
        names = {topic.id: topic.name for topic in self._topics.values()}
        unknown = [row.topic_id for row in found.topics if not row.name]
        if not names.keys() >= set(unknown):
            asked = [MetadataRequestTopic(topic_id=each, name=None) for each in unknown]
            metadata = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
            rows = (await self._requests.call(metadata)).topics
            names |= {row.topic_id: row.name for row in rows}
        return [
            Committed(name, row.partition_index, at, row.metadata or "")
            for topic in found.topics
            if (name := topic.name or names.get(topic.topic_id))
            for row in topic.partitions
            if (at := row.committed_offset) >= 0
        ]

    async def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a group without members."""
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (name, number), offset in offsets.items():
            row = OffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            by_topic.setdefault(name, []).append(row)
        topics = [
            OffsetCommitRequestTopic(
                name=name, topic_id=(await self.topic(name)).id, partitions=rows
            )
            for name, rows in by_topic.items()
        ]
        answer = await ask_coordinator(
            self._requests,
            GROUP,
            group,
            OffsetCommitRequest(group_id=group, topics=topics),
            lambda row: row.topics[0].partitions[0].error_code,
        )
        for topic in answer.topics:
            for row in topic.partitions:
                check(row)

    async def produce_to(self, name: str, records: Iterable[tuple[int | None, Record]]) -> int:
        """Append records to given partitions, None lets the key choose; return their number."""
        topic = await self.topic(name)
        count = 0
        for number, batch in self._batcher.batches(records, topic.partitions, MAX_BATCH_BYTES):
            await self.append(name, number, encode_batch(batch, int(time() * 1000)))
            count += len(batch)
        return count

    async def append(
        self,
        name: str,
        number: int,
        batch: Buffer,
        *,
        transactional_id: str | None = None,
        again: Collection[ErrorCode] = (),
        below: int | None = None,
    ) -> None:
        """Append a batch; once more if the leader has moved, or for an error in `again`.

        `below` is the first version of the request that is not sent.
        """
        data = [PartitionProduceData(index=number, records=batch)]
        topic = await self.topic(name)
        for attempt in range(_ATTEMPTS):
            if number not in topic.leaders:
                raise KorvetError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{name} has partitions 0 to {topic.partitions - 1}.",
                )
            request = ProduceRequest(
                transactional_id=transactional_id,
                acks=-1,
                timeout_ms=admin.TIMEOUT_MS,
                topic_data=[TopicProduceData(name=name, topic_id=topic.id, partition_data=data)],
            )
            answer = await self._requests.call(request, topic.leaders[number], below)
            (found,) = answer.responses[0].partition_responses
            if attempt == _ATTEMPTS - 1 or found.error_code not in (*_MOVED, *again):
                check(found)
                return
            if found.error_code in _MOVED:
                topic = await self._moved(name)
            else:
                await asyncio.sleep(_PAUSE_S)


def _joined(records: Any) -> Buffer:
    """Return the bytes of records, which are pieces if this process has read them."""
    return b"".join(records) if isinstance(records, list) else records or b""


def _batches(data: Buffer) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Yield each batch; Kafka's brokers may cut the last one."""
    view, at = memoryview(data), 0
    while at + HEADER_SIZE <= len(view):
        header = read_header(view, at)
        end = at + header.length + LOG_OVERHEAD
        if not at + HEADER_SIZE <= end <= len(view):
            return
        yield header, view[at:end]
        at = end


Log = AsyncKorvet | BrokerLog
T = TypeVar("T")


def on_any_log(work: Callable[[Log], Awaitable[T]], via: Via) -> T:
    """Run `work` on the log of the brokers or of the target's Redis, and return its result."""
    if via.has_brokers:
        return via.run(lambda requests: work(BrokerLog(requests)))
    return on_log(work, via.target)
