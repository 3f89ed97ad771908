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

from collections.abc import Mapping, Sequence
from time import time

import msgspec

from korvet.groups.offset_commit import parse_commit
from korvet.groups.registry import GroupRegistry
from korvet.scripts.call import decode_group
from korvet.scripts.keys import Keys
from korvet.store.async_store import all_of
from korvet.store.calls import AsyncCalls
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


async def list_consumed(store: AsyncCalls, keys: Keys, topic: Topic) -> list[Consumed]:
    """Return what the topic's groups have consumed, for each partition."""
    names, partitions = (
        topic.policy.consumed_by,
        list(map(topic.partition, range(topic.partitions))),
    )
    groups = await GroupRegistry(store, keys).list_all() if EVERY in names else list(names)
    fields = [partition.stream for partition in partitions]
    replies = await all_of(
        [store.submit_command("HMGET", keys.group_offsets(name), *fields) for name in groups]
    )
    commits = dict(zip(groups, replies, strict=True))
    states = await all_of(
        [store.submit_command("HKEYS", partition.share) for partition in partitions]
    )
    shared = [
        (name, number)
        for number, fields_of in enumerate(states)
        for name in map(decode_group, map(bytes.decode, fields_of))
        if name in commits
    ]
    found = await store.run_many(
        partitions[number].share_describe(group=name, most=0) for name, number in shared
    )
    starts = {name: [-1] * len(partitions) for name, _ in shared}
    for (name, number), reply in zip(shared, found, strict=True):
        starts[name][number] = -1 if reply.error else reply.start
    return lowest(commits, topic.id, topic.partitions, every=EVERY in names, starts=starts)


async def list_held(store: AsyncCalls, keys: Keys, topic: Topic) -> list[tuple[int, str, int]]:
    """Return partition, group and records that it holds, of each partition with such a group."""
    found = await find_held(store, keys, topic)
    return [(number, consumed.group, records) for number, consumed, records in found]


async def find_held(store: AsyncCalls, keys: Keys, topic: Topic) -> list[tuple[int, Consumed, int]]:
    """Return what the groups of `list_held` have consumed, and the records that they hold.

    Records below the time of retention.consumed.max.ms are held by no group.
    """
    found = await list_consumed(store, keys, topic)
    limit_ms = topic.policy.consumed_max_ms
    cutoff_ms = int(time() * 1000) - limit_ms if limit_ms >= 0 else -1
    partitions = [topic.partition(number) for number in range(len(found))]
    starts = await store.run_many(
        partition.find_timestamp(timestamp=cutoff_ms) for partition in partitions
    )
    replies = await store.run_many(
        partition.lag(offset=max(each.offset, start.offset, 0))
        for partition, each, start in zip(partitions, found, starts, strict=True)
    )
    return [
        (number, each, reply.records)
        for number, (each, reply) in enumerate(zip(found, replies, strict=True))
        if each.group and reply.records and not reply.error and not 0 <= reply.newest < cutoff_ms
    ]


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
