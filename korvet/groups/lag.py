"""The lag of consumer groups, and the offsets that tools reset them to."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from korvet.groups.offset_commit import CommittedOffset, parse_commit, parse_field
from korvet.keys import Keys
from korvet.log.offset_for_time import find_time
from korvet.log.position import EARLIEST, Position
from korvet.log.reader import LogReader
from korvet.scripts import log
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic, TopicTable


class PartitionLag(msgspec.Struct, frozen=True):
    """The lag of one committed partition: `lag` in records, `lag_ms` in ms, -1 if unknown."""

    topic: str
    partition: int
    commit: CommittedOffset
    end: int
    lag: int
    lag_ms: int


async def find_offset(
    store: AsyncStore,
    keys: Keys,
    reader: LogReader,
    topic: Topic,
    partition: int,
    position: Position,
) -> int:
    """Return the offset of a position, from log start to log end. The position of a time is the
    first record at or after it."""
    bounds = await store.run(log.list_offsets(keys, topic.name, partition, topic_id=topic.id))
    if isinstance(position, int):
        return min(max(position, bounds.first), bounds.next)
    if position == EARLIEST:
        return bounds.first
    if isinstance(position, datetime):
        moment = int(position.timestamp() * 1000)
        found = await find_time(reader, store, keys, topic, partition, moment)
        if found is not None:
            return found[1]
    return bounds.next


async def list_lags(
    store: AsyncStore, keys: Keys, topics: TopicTable, group_id: str
) -> list[PartitionLag]:
    """Return the lag of every committed partition of topics that exist, in order."""
    flat = await store.command("HGETALL", keys.group_offsets(group_id))
    rows = await parse_commits(topics, zip(flat[::2], flat[1::2], strict=True))
    replies = await store.run_many(
        log.lag(keys, topic.name, number, topic_id=topic.id, offset=max(commit.offset, 0))
        for topic, number, commit in rows
    )
    found = [
        PartitionLag(
            topic.name, number, commit, reply.next, reply.records, _lag_ms(topic, commit, reply)
        )
        for (topic, number, commit), reply in zip(rows, replies, strict=True)
        if not reply.error
    ]
    return sorted(found, key=lambda row: (row.topic, row.partition))


async def parse_commits(
    topics: TopicTable, pairs: Iterable[tuple[bytes, bytes]]
) -> Sequence[tuple[Topic, int, CommittedOffset]]:
    """Return the commits of a group's offsets hash, of topics that exist."""
    rows = []
    for field, raw in pairs:
        found, commit = parse_field(field), parse_commit(raw)
        if found is None or commit is None:
            continue
        topic = await topics.get(found[0])
        if topic is not None and commit.topic_id in ("", topic.id):
            rows.append((topic, found[1], commit))
    return rows


def _lag_ms(topic: Topic, commit: CommittedOffset, reply: Any) -> int:
    """Return the ms from the committed offset to the newest record; -1 unless offsets are times."""
    if reply.records == 0:
        return 0
    if topic.policy.offset_mode != "time" or reply.newest < 0:
        return -1
    return max(0, int(reply.newest) - (commit.offset >> topic.policy.offset_bits))
