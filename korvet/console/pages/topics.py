"""The list of topics."""

from collections.abc import Sequence
from time import time

import msgspec

from korvet.console.pages.topic import GroupLag, TopicLags, count_records, is_tiered, lags_of
from korvet.console.visit import Visit
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import ListOffsetsReply
from korvet.topics.table import Topic

PAGE = 50
"""Topics on a page."""
MAX_PARTITIONS = 1_000
"""Max partitions whose size a page reads."""


class TopicRow(msgspec.Struct, frozen=True):
    """A topic. Sizes are of all its partitions; `bytes` are those in Redis."""

    name: str
    partitions: int
    storage_format: str
    offset_mode: str
    records: int
    bytes: int
    newest_ms: int
    """Newest timestamp, -1 without records."""
    is_sized: bool
    """False if the page has too many partitions to read this topic's sizes."""
    slowest: GroupLag | None
    """The group with the largest lag."""
    groups: int


class Topics(msgspec.Struct, frozen=True):
    """A page of the topics, by name."""

    topics: Sequence[TopicRow]
    total: int
    """Topics that match."""
    page: int
    pages: int
    search: str
    at_ms: int
    """Time of the reading: two of them give the rate of each topic."""
    has_all_groups: bool
    """False if there are more groups than a page reads: another one may be slower."""
    is_sorted: bool
    """False if there are too many topics to sort more than this page."""


async def load(visit: Visit) -> Topics:
    """Return one page of the topics that the user may describe."""
    search = visit.query("q")
    context = visit.context()
    found = [
        topic
        for topic in await visit.services.topics.all()
        if search.lower() in topic.name.lower() and context.may_describe(topic.name, audit=False)
    ]
    lags = TopicLags({}, False)

    async def read(shown: Sequence[Topic]) -> list[TopicRow]:
        nonlocal lags
        # An open page repeats its read for the rates only.
        if visit.query("lags") != "0":
            lags = await lags_of(visit, shown)
        return await _rows(visit, shown, lags)

    rows, page, pages, is_sorted = await visit.list_of(found, PAGE, read)
    now_ms = int(time() * 1000)
    is_complete = lags.is_complete
    return Topics(rows, len(found), page, pages, search, now_ms, is_complete, is_sorted)


async def _rows(visit: Visit, shown: Sequence[Topic], lags: TopicLags) -> list[TopicRow]:
    calls: list[Call[ListOffsetsReply]] = []
    sized = set()
    for topic in shown:
        if len(calls) + topic.partitions <= MAX_PARTITIONS:
            sized.add(topic.name)
            calls += [topic.partition(number).list_offsets() for number in range(topic.partitions)]
    replies = iter(await visit.services.store.run_many(calls))
    rows = []
    for topic in shown:
        parts = [next(replies) for _ in range(topic.partitions)] if topic.name in sized else []
        groups = lags.by_topic.get(topic.name, [])
        rows.append(
            TopicRow(
                name=topic.name,
                partitions=topic.partitions,
                storage_format=topic.policy.storage_format,
                offset_mode=topic.policy.offset_mode,
                records=await _records(visit, topic, parts),
                bytes=sum(max(0, part.bytes) for part in parts),
                newest_ms=max((part.newest for part in parts), default=-1),
                is_sized=topic.name in sized,
                slowest=groups[0] if groups else None,
                groups=len(groups),
            )
        )
    return rows


async def _records(visit: Visit, topic: Topic, parts: list[ListOffsetsReply]) -> int:
    if parts and is_tiered(topic):
        return sum(await count_records(visit, topic, range(topic.partitions)))
    return sum(max(0, part.records) for part in parts)


class NewTopic(msgspec.Struct, frozen=True):
    """The defaults of a new topic."""

    partitions: int
    storage_format: str
    offset_mode: str
    retention_ms: int


async def load_new(visit: Visit) -> NewTopic:
    """Return the defaults of a new topic."""
    policy = visit.services.topic_configs.policy("new", {})
    return NewTopic(
        visit.services.settings.integer("num.partitions"),
        policy.storage_format,
        policy.offset_mode,
        policy.retention_ms,
    )
