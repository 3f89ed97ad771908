"""Read one topic: its partitions, configs, consumers and producers; the lag of groups on topics.

A lag counts records in every offset mode, as `korvet groups describe` does. That of a share group
counts what it has not finished.
"""

from collections.abc import Iterable, Sequence
from time import time

import msgspec

from korvet.admin.config_edits import ConfigResourceType
from korvet.admin.requests import describe_configs
from korvet.base.bounded import chunks
from korvet.config.setting import Source
from korvet.config.topic_settings import TOPIC
from korvet.console.shown import Shown, show
from korvet.console.visit import NO_TOPIC, PageError, Visit, check, check_row
from korvet.groups.consumed import list_held
from korvet.groups.description import SHARE
from korvet.groups.lag import GroupPositions, lag_call, read_groups
from korvet.groups.lag_survey import is_growing, read_earlier
from korvet.groups.share_group import describe_partitions, share_places
from korvet.log import foreign_entries
from korvet.log.tables import sizes
from korvet.remote_log.manifest import ManifestTotals, totals
from korvet.security.acl import Operation, ResourceType
from korvet.security.quotas import CONSUMER_BYTES
from korvet.topics.table import Topic
from korvet.wire.messages.describe_producers import DescribeProducersRequest
from korvet.wire.structs import PartitionIndexes

PAGE = 50
"""Partitions on a page."""
MAX_GROUPS = 200
"""Max groups whose commits a page reads."""
GROUPS_AT_ONCE = 50
MAX_LAGS = 1_000
"""Max partitions of groups whose lag a page counts."""


class GroupLag(msgspec.Struct, frozen=True):
    """A group's lag on a topic: in records of the partitions that it committed or is assigned."""

    group: str
    lag: int
    partitions: int
    """Partitions with a commit or a member, or with state of a share group."""
    newest_commit_ms: int
    """Time of the last commit, -1 if unknown."""
    grows: bool = False
    """Whether the lag is greater than some minutes ago."""


class TopicLags(msgspec.Struct, frozen=True):
    """The groups that committed offsets of topics, the slowest first."""

    by_topic: dict[str, list[GroupLag]]
    is_complete: bool
    """False if there are more groups or commits than a page reads."""


async def lags_of(visit: Visit, topics: Sequence[Topic]) -> TopicLags:
    """Return the lag of groups on these topics."""
    services = visit.services
    store = services.store
    names = (await services.groups.registry.scan_all())[: MAX_GROUPS + 1]
    names = [name for name in names if visit.may(Operation.DESCRIBE, ResourceType.GROUP, name)]
    is_complete = len(names) <= MAX_GROUPS
    names = names[:MAX_GROUPS]
    if not topics or not names:
        return TopicLags({}, is_complete)
    wanted = {topic.id for topic in topics}
    groups: list[GroupPositions] = []
    for some in chunks(names, GROUPS_AT_ONCE):
        groups += await read_groups(services.node, some)
    found = [(group.name, *row) for group in groups for row in group.commits if row[0].id in wanted]
    replies = await store.run_many(lag_call(*row[1:]) for row in found[:MAX_LAGS])
    lags = [
        (name, topic.name, reply.records, commit.time_ms)
        for (name, topic, _, commit), reply in zip(found, replies, strict=False)
    ]
    left = MAX_LAGS
    for name in (group.name for group in groups if group.type == SHARE):
        if left < 0:
            break
        places = await share_places(services.node, name)
        places = [partition for partition in places if partition[0].id in wanted]
        parts = await describe_partitions(store, name, places[:left])
        lags += [(name, part.topic.name, part.lag, -1) for part in parts if part.start >= 0]
        left -= len(places)
    sums: dict[str, dict[str, list[int]]] = {}
    for name, topic_name, lag, time_ms in lags:
        row = sums.setdefault(topic_name, {}).setdefault(name, [0, 0, -1])
        row[0] += max(0, lag)
        row[1] += 1
        row[2] = max(row[2], time_ms)
    earlier = await read_earlier(store, services.keys, {row[0] for row in lags})
    return TopicLags(
        {
            topic: sorted(
                (
                    GroupLag(name, lag, count, at_ms, is_growing(lag, earlier.get(name), topic))
                    for name, (lag, count, at_ms) in by_group.items()
                ),
                key=lambda lag: (-lag.lag, lag.group),
            )
            for topic, by_group in sums.items()
        },
        is_complete and left >= 0 and len(found) <= MAX_LAGS,
    )


class PartitionRow(msgspec.Struct, frozen=True):
    """A partition. Its log is [earliest, latest); Redis has the records from `local_start` on."""

    partition: int
    earliest: int
    local_start: int
    """The first offset in Redis; segments of the remote store have those below it."""
    last_stable: int
    """Reads of committed records end here: the first offset of the oldest open transaction."""
    latest: int
    records: int
    """Records of Redis and of segments."""
    bytes: int
    """Bytes in Redis."""
    newest_ms: int
    segments: int
    segment_records: int
    segment_bytes: int
    open_transactions: int
    stream: str
    """The key of the stream in Redis."""
    held_by: str
    """The group that retention.consumed waits for, if any."""
    table: tuple[int, int] | None
    """Keys of its table, and its bytes of Redis's memory; None without table.enable."""


class ConfigRow(msgspec.Struct, frozen=True):
    """A config of the topic, with where its value is from."""

    name: str
    value: str | None
    source: str
    """`topic`, `broker` or `default`."""
    is_read_only: bool
    documentation: str


class TopicPage(msgspec.Struct, frozen=True):
    """A topic with a page of its partitions."""

    name: str
    id: str
    partition_count: int
    storage_format: str
    offset_mode: str
    partitions: list[PartitionRow]
    page: int
    pages: int
    records: int
    """Records of the partitions on this page."""
    bytes: int
    consumers: list[GroupLag]
    has_all_consumers: bool
    configs: list[ConfigRow]
    """Empty for a user that may not describe configs."""
    is_tiered: bool
    key: str
    """The key that was looked up in the topic's table; empty for none."""
    newest: Shown | None
    """The newest value of that key."""
    findings: list[str]
    """A sentence for each partition of this page with entries that no client reads."""


async def find_topic(
    visit: Visit, operation: Operation = Operation.DESCRIBE, name: str | None = None
) -> Topic:
    """Return the topic, by default of the path, if the user has the right. Raises PageError."""
    name = visit.path["topic"] if name is None else name
    visit.require(operation, ResourceType.TOPIC, name)
    topic = await visit.services.topics.get(name)
    if topic is None:
        raise PageError(404, f"There is no topic {name!r}.", NO_TOPIC)
    return topic


async def load(visit: Visit) -> TopicPage:
    """Return a topic with a page of its partitions."""
    topic = await find_topic(visit)
    numbers, page, pages = visit.page_of(range(topic.partitions), PAGE)
    lags = await lags_of(visit, [topic])
    partitions = await _partitions(visit, topic, numbers)
    is_searched = topic.policy.table_enable and not visit.is_refused
    key, newest = visit.query("key") if is_searched else "", None
    if key:
        visit.require(Operation.READ, ResourceType.TOPIC, topic.name)
        await visit.charge(CONSUMER_BYTES, 0)
        value = await (await visit.log.table(topic.name)).get(key.encode())
        newest = show(value)
        await visit.charge(CONSUMER_BYTES, newest.bytes)
    return TopicPage(
        name=topic.name,
        id=topic.id,
        partition_count=topic.partitions,
        storage_format=topic.policy.storage_format,
        offset_mode=topic.policy.offset_mode,
        partitions=partitions,
        page=page,
        pages=pages,
        records=sum(row.records for row in partitions),
        bytes=sum(row.bytes for row in partitions),
        consumers=lags.by_topic.get(topic.name, []),
        has_all_consumers=lags.is_complete,
        configs=await _configs(visit, topic.name),
        is_tiered=is_tiered(topic),
        key=key,
        newest=newest,
        findings=await _findings(visit, topic, numbers),
    )


async def _findings(visit: Visit, topic: Topic, numbers: Sequence[int]) -> list[str]:
    store, keys = visit.services.store, visit.services.keys
    places = {(topic.name, topic.id, number): topic.policy for number in numbers}
    refusing, unread = await foreign_entries.find(store, keys, places)
    return refusing + unread


async def _partitions(visit: Visit, topic: Topic, numbers: Sequence[int]) -> list[PartitionRow]:
    store, keys = visit.services.store, visit.services.keys
    replies = await store.run_many(topic.partition(number).list_offsets() for number in numbers)
    opened = [
        store.submit_command("ZCARD", topic.partition(number).open_txns) for number in numbers
    ]
    counts = [max(0, reply.records) for reply in replies]
    if is_tiered(topic):
        counts = await count_records(visit, topic, numbers)
    kept_for = {}
    if topic.policy.consumed_by:
        kept_for = {row[0]: row[1] for row in await list_held(store, keys, topic)}
    rows = []
    for number, reply, records, open_count in zip(numbers, replies, counts, opened, strict=True):
        check(reply.error)
        tiered = ManifestTotals(reply.local_first, 0, 0, 0)
        if is_tiered(topic):
            tiered = await totals(store, topic.partition(number))
        is_local_start = reply.first <= reply.local_first <= reply.next
        rows.append(
            PartitionRow(
                partition=number,
                earliest=reply.first,
                local_start=reply.local_first if is_local_start else reply.first,
                last_stable=reply.next if reply.stable < 0 else reply.stable,
                latest=reply.next,
                records=records,
                bytes=reply.bytes,
                newest_ms=reply.newest,
                segments=tiered.segments,
                segment_records=tiered.segment_records,
                segment_bytes=tiered.segment_bytes,
                open_transactions=await open_count,
                stream=topic.partition(number).stream,
                held_by=kept_for.get(number, ""),
                table=await sizes(store, topic.partition(number))
                if topic.policy.table_enable
                else None,
            )
        )
    return rows


async def count_records(visit: Visit, topic: Topic, numbers: Iterable[int]) -> list[int]:
    """Return the records of partitions, those of segments included."""
    replies = await visit.services.store.run_many(
        topic.partition(number).lag(offset=0) for number in numbers
    )
    return [max(0, reply.records) for reply in replies]


def is_tiered(topic: Topic) -> bool:
    """Return whether the topic may have segments."""
    return topic.policy.remote_storage or "remote.storage.enable" in topic.configs


async def _configs(visit: Visit, name: str) -> list[ConfigRow]:
    if not visit.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return []
    request = describe_configs(ConfigResourceType.TOPIC, [name], documentation=True)
    answer = await visit.call(request)
    (result,) = answer.results
    check_row(result)
    rows = [
        ConfigRow(
            row.name, row.value, _source(row.config_source), row.read_only, row.documentation or ""
        )
        for row in result.configs
        if row.name in TOPIC and TOPIC[row.name].effect
    ]
    return sorted(rows, key=lambda row: (row.source != "topic", row.source != "broker", row.name))


def _source(number: int) -> str:
    if number == Source.DYNAMIC_TOPIC:
        return "topic"
    return "default" if number == Source.DEFAULT else "broker"


class ProducerRow(msgspec.Struct, frozen=True):
    """A producer that a partition has state of."""

    partition: int
    producer_id: int
    epoch: int
    last_sequence: int
    last_ms: int
    open_since_offset: int
    """First offset of its open transaction, -1 for none."""


class Producers(msgspec.Struct, frozen=True):
    """The producers of a topic's first partitions, those with an open transaction first."""

    topic: str
    producers: list[ProducerRow]
    partitions: int
    """Partitions that were read."""
    at_ms: int


async def load_producers(visit: Visit) -> Producers:
    """Return the producers of a topic."""
    topic = await find_topic(visit, Operation.READ)
    count = min(topic.partitions, PAGE)
    asked = PartitionIndexes(name=topic.name, partition_indexes=list(range(count)))
    answer = await visit.call(DescribeProducersRequest(topics=[asked]))
    rows = [
        ProducerRow(
            part.partition_index,
            row.producer_id,
            row.producer_epoch,
            row.last_sequence,
            row.last_timestamp,
            row.current_txn_start_offset,
        )
        for part in answer.topics[0].partitions
        for row in part.active_producers
    ]
    rows.sort(key=lambda row: (row.open_since_offset < 0, -row.last_ms))
    return Producers(topic.name, rows[:200], count, int(time() * 1000))
