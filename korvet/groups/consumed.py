"""Find the lowest commits of the groups of `retention.consumed`.

Rules
- A partition is consumed up to the lowest committed offset of these groups. Of a share group, its
  start offset counts: below it all records are acknowledged or archived.
- A named group without a commit holds all records. `*` is every group with a commit on the topic,
  or with a share group's state: a partition without one is held too, and a topic without such
  groups entirely. A group whose members have committed nothing yet does not count.
- A commit counts once it is stored. A reset to a lower offset does not bring records back.
- Records that have left Redis, or are older than retention.consumed.max.ms, are held by no group.
"""

from asyncio import gather
from collections.abc import Mapping, Sequence
from time import time

import msgspec

from korvet.groups.offset_commit import parse_commit
from korvet.groups.registry import GroupRegistry
from korvet.scripts.call import Call, decode_group
from korvet.scripts.calls.partition import LagReply, ShareDescribeReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic

EVERY = "*"
Commits = Mapping[str, Sequence[bytes | None]]
"""The stored commits of groups, by group id: one for each partition of a topic, in order."""
Starts = Mapping[str, Sequence[int]]
"""The start offsets of share groups likewise; -1 for a partition without state."""


class Consumed(msgspec.Struct, frozen=True):
    """The offset up to which all groups have committed, and the group with that offset.

    The offset is -1 if a group has no commit. The group is empty if there are none.
    """

    offset: int
    group: str


async def list_consumed(store: AsyncStore, keys: Keys, topic: Topic) -> list[Consumed]:
    """Return what the topic's groups have consumed, for each partition."""
    names = topic.policy.consumed_by
    groups = await GroupRegistry(store, keys).list_all() if EVERY in names else list(names)
    fields = commit_fields(keys, topic.name, topic.partitions)
    replies = await gather(
        *(store.submit_command("HMGET", keys.group_offsets(name), *fields) for name in groups)
    )
    commits = dict(zip(groups, replies, strict=True))
    states = await gather(
        *(
            store.submit_command("HKEYS", keys.partition(topic.name, number).share)
            for number in range(topic.partitions)
        )
    )
    calls = start_calls(keys, topic.name, topic.id, states, commits)
    places, found = list(calls), await store.run_many(calls.values())
    starts = share_starts(places, found, topic.partitions)
    return lowest(commits, topic.id, topic.partitions, every=EVERY in names, starts=starts)


async def list_held(store: AsyncStore, keys: Keys, topic: Topic) -> list[tuple[int, str, int]]:
    """Return partition, group and records that it holds, of each partition with such a group."""
    found = await list_consumed(store, keys, topic)
    cutoff_ms = held_since_ms(topic.policy.consumed_max_ms)
    partitions = [topic.partition(number) for number in range(len(found))]
    starts = await store.run_many(
        partition.find_timestamp(timestamp=cutoff_ms) for partition in partitions
    )
    replies = await store.run_many(
        partition.lag(offset=max(each.offset, start.offset, 0))
        for partition, each, start in zip(partitions, found, starts, strict=True)
    )
    return [
        (number, each.group, records)
        for number, (each, reply) in enumerate(zip(found, replies, strict=True))
        if each.group and (records := held_records(reply, cutoff_ms))
    ]


def held_since_ms(limit_ms: int) -> int:
    """Return the timestamp from which groups hold records, by retention.consumed.max.ms."""
    return int(time() * 1000) - limit_ms if limit_ms >= 0 else -1


def held_records(reply: LagReply, cutoff_ms: int) -> int:
    """Return how many of the counted records groups hold: none if all are below the timestamp."""
    return 0 if reply.error or 0 <= reply.newest < cutoff_ms else reply.records


def commit_fields(keys: Keys, topic: str, partitions: int) -> list[str]:
    """Return the fields of a group's offsets that have the topic's commits."""
    return [keys.partition(topic, number).stream for number in range(partitions)]


def start_calls(
    keys: Keys, topic: str, topic_id: str, states: Sequence[Sequence[bytes]], wanted: Commits
) -> dict[tuple[str, int], Call[ShareDescribeReply]]:
    """Return a call for the start offset of each wanted share group in each partition.

    `states` are the share groups with state in each partition.
    """
    return {
        (name, number): keys.partition(topic, number, topic_id).share_describe(group=name, most=0)
        for number, groups in enumerate(states)
        for name in map(decode_group, map(bytes.decode, groups))
        if name in wanted
    }


def share_starts(
    places: Sequence[tuple[str, int]], replies: Sequence[ShareDescribeReply], partitions: int
) -> Starts:
    """Return the start offsets by group, of the replies to `start_calls`."""
    starts = {name: [-1] * partitions for name, _ in places}
    for (name, number), reply in zip(places, replies, strict=True):
        starts[name][number] = -1 if reply.error else reply.start
    return starts


def lowest(
    commits: Commits,
    topic_id: str,
    partitions: int,
    *,
    every: bool,
    starts: Starts | None = None,
) -> list[Consumed]:
    """Return the lowest commit of each partition.

    `every`: groups without any commit on the topic do not count. `starts`: those of share groups.
    """
    offsets: dict[str, Sequence[int]] = {
        name: [_offset(raw, topic_id) for raw in row] for name, row in commits.items()
    }
    offsets |= starts or {}
    if every:
        offsets = {name: row for name, row in offsets.items() if max(row, default=-1) >= 0}
    return [
        min(
            (Consumed(row[number], name) for name, row in offsets.items()),
            key=lambda each: (each.offset, each.group),
            default=Consumed(-1, ""),
        )
        for number in range(partitions)
    ]


def _offset(raw: bytes | None, topic_id: str) -> int:
    commit = parse_commit(raw) if raw else None
    if commit is None or commit.topic_id not in ("", topic_id):
        return -1
    return commit.offset
