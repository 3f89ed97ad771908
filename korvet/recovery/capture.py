"""Read the metadata of a cluster from Redis for a snapshot."""

from asyncio import gather
from collections.abc import Sequence
from time import time
from typing import TypeVar

import msgspec

from korvet.groups.offset_commit import parse_commit, parse_field
from korvet.keys import Keys, decode_group, encode_group
from korvet.recovery.scheduled import capture_scheduled
from korvet.recovery.share_groups import capture_share_groups
from korvet.recovery.snapshot import CommitRow, PartitionState, Snapshot, TopicState
from korvet.scripts import log
from korvet.security.credentials import BY_TITLE
from korvet.store.async_store import AsyncStore
from korvet.topics.table import LIVE, VERSION_FIELD, Definition

T = TypeVar("T")
AT_ONCE = 256
"""Max calls in one pipeline."""


async def capture(store: AsyncStore, keys: Keys, cluster_id: str, lineage: str) -> Snapshot:
    """Return the metadata as Redis has it now."""
    topics = await _topics(store, keys)
    configs = await _fields(store, keys.configs())
    users = await _fields(store, keys.users())
    acls = await _fields(store, keys.acls())
    deleted = await store.command("ZRANGE", keys.deleted_topics(), 0, -1)
    # The commits last: an end that was read before may be below one of them, never the reverse.
    names = [each.decode() for each in await _fields(store, keys.groups())]
    topic_ids = {state.definition.id for state in topics.values()}
    groups = await _groups(store, keys, names, topic_ids)
    share_groups = await capture_share_groups(store, keys, names, topics)
    scheduled = await capture_scheduled(store, keys, topics)
    return Snapshot(
        cluster_id=cluster_id,
        lineage=lineage,
        namespace=keys.namespace,
        created_ms=int(time() * 1000),
        topics=topics,
        deleted_topics=[each.decode() for each in deleted],
        configs={
            encode_group(_text(name)): found
            for name, raw in configs.items()
            if (found := _decode(raw, dict[str, str])) is not None
        },
        users={
            encode_group(_text(name)): raw.decode()
            for name, raw in users.items()
            if name.partition(b":")[0].decode() in BY_TITLE
        },
        acls=sorted(_text(rule) for rule in acls),
        groups=groups,
        share_groups=share_groups,
        scheduled=scheduled,
    )


async def versions(store: AsyncStore, keys: Keys) -> list[bytes | None]:
    """Return the versions of the tables, which change with any of their rows."""
    tables = (keys.topics(), keys.configs(), keys.acls(), keys.users())
    found = await gather(*(store.submit_command("HGET", each, VERSION_FIELD) for each in tables))
    return list(found)


def _decode(raw: bytes, kind: type[T]) -> T | None:
    """Return a stored value; None if another program wrote something else."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


async def _fields(store: AsyncStore, key: str) -> dict[bytes, bytes]:
    flat = await store.command("HGETALL", key)
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    found.pop(VERSION_FIELD.encode(), None)
    return found


async def _topics(store: AsyncStore, keys: Keys) -> dict[str, TopicState]:
    """Return the topics that clients see; a change in progress is not part of them."""
    found = {}
    for name, raw in (await _fields(store, keys.topics())).items():
        definition = _decode(raw, Definition)
        if definition is not None and definition.state == LIVE:
            definition = msgspec.structs.replace(definition, planned=0)
            partitions = await _partitions(store, keys, name.decode(), definition)
            if partitions is not None:
                found[name.decode()] = TopicState(definition, partitions)
    return found


async def _partitions(
    store: AsyncStore, keys: Keys, topic: str, definition: Definition
) -> list[PartitionState] | None:
    """Return the offsets of the topic's partitions; None if it was deleted meanwhile."""
    found = []
    for first in range(0, definition.partitions, AT_ONCE):
        replies = await store.run_many(
            log.list_offsets(keys, topic, number, topic_id=definition.id)
            for number in range(first, min(first + AT_ONCE, definition.partitions))
        )
        for reply in replies:
            if reply.error:
                return None
            found.append(PartitionState(reply.start, reply.next, reply.tiered, reply.epoch))
    return found


async def _groups(
    store: AsyncStore, keys: Keys, names: Sequence[str], topic_ids: set[str]
) -> dict[str, list[CommitRow]]:
    found = {}
    for first in range(0, len(names), AT_ONCE):
        some = names[first : first + AT_ONCE]
        replies = await gather(
            *(
                store.submit_command("HGETALL", keys.group_offsets(decode_group(name)))
                for name in some
            )
        )
        for name, flat in zip(some, replies, strict=True):
            rows = _commits(flat, topic_ids)
            if rows:
                found[name] = rows
    return found


def _commits(flat: Sequence[bytes], topic_ids: set[str]) -> list[CommitRow]:
    """Return the commits on these topics, of a group's hash of offsets."""
    rows: list[CommitRow] = []
    for field, raw in zip(flat[::2], flat[1::2], strict=True):
        place, commit = parse_field(field), parse_commit(raw)
        if place is not None and commit is not None and commit.topic_id in {"", *topic_ids}:
            metadata = encode_group(commit.metadata)
            rows.append((*place, commit.offset, commit.epoch, commit.topic_id, metadata))
    return sorted(rows)
