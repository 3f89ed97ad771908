"""The lag of consumer groups, and the offsets that tools reset them to."""

from asyncio import gather
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from korvet.base.bounded import chunks
from korvet.groups.description import CLASSIC, SHARE, Assignment, find_partitions
from korvet.groups.offset_commit import CommittedOffset, parse_commit, parse_field
from korvet.groups.streams_group import decode_topology
from korvet.log.offset_for_time import find_time
from korvet.log.position import EARLIEST, Position
from korvet.log.reader import LogReader
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import LagReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.node import Node
from korvet.topics.table import Topic, TopicTable

_FIELDS = ("type", "state", "protocol_type", "size", "topology")


class PartitionLag(msgspec.Struct, frozen=True):
    """The lag of a partition that a group has committed or is assigned: `lag` in records."""

    topic: str
    partition: int
    commit: CommittedOffset
    """Offset -1 without a commit: the lag then counts all records of the partition."""
    end: int
    lag: int
    lag_ms: int
    """From the oldest unread record to the newest one, in ms; -1 if unknown."""
    age_ms: int
    """From the oldest unread record to now, in ms: 0 without lag, -1 if unknown."""


Commit = tuple[Topic, int, CommittedOffset]
NO_COMMIT = CommittedOffset(-1)


class GroupPositions(msgspec.Struct, frozen=True):
    """A group, and the partitions that it has committed or is assigned."""

    name: str
    type: str
    state: str
    protocol_type: str
    members: int
    commits: Sequence[Commit]
    """In order of topic and partition, with NO_COMMIT for those that are only assigned."""


async def find_offset(
    store: AsyncStore, reader: LogReader, topic: Topic, partition: int, position: Position
) -> int:
    """Return the offset of a position, from log start to log end; -1 without the partition.

    The position of a time is the first record at or after it.
    """
    bounds = await store.run(topic.partition(partition).list_offsets())
    if bounds.error:
        return -1
    if isinstance(position, int):
        return min(max(position, bounds.first), bounds.next)
    if position == EARLIEST:
        return bounds.first
    if isinstance(position, datetime):
        moment = int(position.timestamp() * 1000)
        found = await find_time(reader, store, topic, partition, moment)
        if found is not None:
            return found[1]
    return bounds.next


async def list_lags(node: Node, group_id: str) -> list[PartitionLag]:
    """Return the lag of every partition that the group has committed or is assigned, in order."""
    replies = [await node.store.command(*each) for each in _commands(node.keys, group_id)]
    rows = (await _positions(node.topics, group_id, replies)).commits
    lags = await node.store.run_many(lag_call(*row) for row in rows)
    now_ms = await redis_ms(node.store)
    return [
        PartitionLag(
            topic.name,
            number,
            commit,
            reply.next,
            reply.records,
            lag_ms=_behind_ms(reply),
            age_ms=age_ms(reply.records, reply.oldest, now_ms),
        )
        for (topic, number, commit), reply in zip(rows, lags, strict=True)
        if not reply.error
    ]


def lag_call(topic: Topic, number: int, commit: CommittedOffset) -> Call[LagReply]:
    """Return the call that counts a group's lag: without a commit that of all records."""
    return topic.partition(number).lag(offset=max(commit.offset, 0))


async def redis_ms(store: AsyncStore) -> int:
    """Return the time of Redis in ms."""
    seconds, micros = await store.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def age_ms(lag: int, oldest_ms: int, now_ms: int) -> int:
    """Return the age of the oldest unread record: 0 without lag, -1 if unknown."""
    if lag <= 0:
        return 0
    return -1 if oldest_ms < 0 else max(0, now_ms - oldest_ms)


def _behind_ms(reply: LagReply) -> int:
    if reply.records <= 0:
        return 0
    return -1 if reply.oldest < 0 else max(0, reply.newest - reply.oldest)


async def read_groups(node: Node, names: Sequence[str]) -> list[GroupPositions]:
    """Return the groups of these names that exist, in this order."""
    if not names:
        return []
    asked = [each for name in names for each in _commands(node.keys, name)]
    replies = await gather(*(node.store.submit_command(*each) for each in asked))
    each_has = len(asked) // len(names)
    rows = zip(names, chunks(replies, each_has), strict=True)
    return [
        await _positions(node.topics, name, some) for name, some in rows if some[0][3] is not None
    ]


def _commands(keys: Keys, name: str) -> list[tuple[str, ...]]:
    k = keys.group(name)
    return [
        ("HMGET", k.group, *_FIELDS),
        ("HGETALL", keys.group_offsets(name)),
        ("HVALS", k.assignments),
        ("HVALS", k.target_assignment),
    ]


async def _positions(topics: TopicTable, name: str, replies: Sequence[Any]) -> GroupPositions:
    """Return a group of the replies to its commands."""
    head, flat, classic, targets = replies
    commits = await parse_commits(topics, zip(flat[::2], flat[1::2], strict=True))
    rows = {(topic.name, number): (topic, number, commit) for topic, number, commit in commits}
    kind, state, protocol_type = ((word or b"").decode() for word in head[:3])
    for topic, number in await _assigned(topics, kind, head, classic, targets):
        rows.setdefault((topic.name, number), (topic, number, NO_COMMIT))
    ordered = [rows[partition] for partition in sorted(rows)]
    return GroupPositions(name, kind, state, protocol_type, int(head[3] or 0), ordered)


async def _assigned(
    topics: TopicTable,
    kind: str,
    head: Sequence[bytes | None],
    classic: Sequence[bytes],
    targets: Sequence[bytes],
) -> list[tuple[Topic, int]]:
    """Return the partitions that are assigned to members; of a share group they are none."""
    assignments = {CLASSIC: classic, SHARE: ()}.get(kind, targets)
    found = await find_partitions(
        topics,
        (head[2] or b"").decode(),
        decode_topology(head[4] or b""),
        [Assignment.of(kind, raw) for raw in assignments],
    )
    places = [(await topics.get(name), number) for each in found for name, number in each]
    return [(topic, n) for topic, n in places if topic is not None and 0 <= n < topic.partitions]


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
        if topic is not None and commit.is_of(topic):
            rows.append((topic, found[1], commit))
    return rows
