"""Find the lowest commits of the groups of `retention.consumed`.

Rules
- A partition is consumed up to the lowest committed offset of these groups.
- A named group without a commit holds all records. `*` is every group with a commit on the topic: a
  partition without a commit of such a group is held too, and a topic without such groups entirely.
- A commit counts once it is stored. A reset to a lower offset does not bring records back.
- Records that have left Redis, or are older than retention.consumed.max.ms, are held by no group.
"""

from asyncio import gather
from collections.abc import Mapping, Sequence
from time import time

import msgspec

from korvet.groups.offset_commit import parse_commit
from korvet.groups.registry import GroupRegistry
from korvet.keys import Keys
from korvet.scripts import log
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic

EVERY = "*"
Commits = Mapping[str, Sequence[bytes | None]]
"""The stored commits of groups, by group id: one for each partition of a topic, in order."""


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
    return lowest(commits, topic.id, topic.partitions, every=EVERY in names)


async def list_held(store: AsyncStore, keys: Keys, topic: Topic) -> list[tuple[int, str, int]]:
    """Return partition, group and records that it holds, of each partition with such a group."""
    found = await list_consumed(store, keys, topic)
    cutoff_ms = held_since_ms(topic.policy.consumed_max_ms)
    place = (keys, topic.name)
    starts = await store.run_many(
        log.find_timestamp(*place, number, topic_id=topic.id, timestamp=cutoff_ms)
        for number in range(len(found))
    )
    replies = await store.run_many(
        log.lag(*place, number, topic_id=topic.id, offset=max(each.offset, start.offset, 0))
        for number, (each, start) in enumerate(zip(found, starts, strict=True))
    )
    return [
        (number, each.group, records)
        for number, (each, reply) in enumerate(zip(found, replies, strict=True))
        if each.group and (records := held_records(reply, cutoff_ms))
    ]


def held_since_ms(limit_ms: int) -> int:
    """Return the timestamp from which groups hold records, by retention.consumed.max.ms."""
    return int(time() * 1000) - limit_ms if limit_ms >= 0 else -1


def held_records(reply: log.LagReply, cutoff_ms: int) -> int:
    """Return how many of the counted records groups hold: none if all are below the timestamp."""
    return 0 if reply.error or 0 <= reply.newest < cutoff_ms else reply.records


def commit_fields(keys: Keys, topic: str, partitions: int) -> list[str]:
    """Return the fields of a group's offsets that have the topic's commits."""
    return [keys.partition(topic, number).stream for number in range(partitions)]


def lowest(commits: Commits, topic_id: str, partitions: int, *, every: bool) -> list[Consumed]:
    """Return the lowest commit of each partition.

    `every`: groups without any commit on the topic do not count.
    """
    offsets = {
        name: [_offset(raw, topic_id) for raw in row]
        for name, row in commits.items()
        if not every or any(_offset(raw, topic_id) >= 0 for raw in row)
    }
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
