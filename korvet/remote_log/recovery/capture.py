"""Read the metadata of a cluster from Redis for a snapshot."""

from asyncio import gather
from collections.abc import Mapping, Sequence
from time import time
from typing import NamedTuple, TypeVar

import msgspec

from korvet.base.bounded import chunks
from korvet.groups.offset_commit import parse_commit, parse_field
from korvet.log.unchanged import LOOKED_AT, Unchanged
from korvet.remote_log.recovery.scheduled import Pause, capture_scheduled
from korvet.remote_log.recovery.snapshot import (
    CommitRow,
    PartitionState,
    ShareRow,
    Snapshot,
    TopicState,
)
from korvet.scripts.call import decode_group, encode_group
from korvet.scripts.keys import Keys
from korvet.security.credentials import BY_TITLE
from korvet.store.async_store import AsyncStore
from korvet.topics.table import LIVE, VERSION_FIELD, Definition

T = TypeVar("T")


async def no_pause(_done: int, _total: int) -> None:
    """Read on at once."""


class Live(NamedTuple):
    """A topic that clients see."""

    name: str
    raw: bytes
    definition: Definition

    @property
    def id(self) -> str:
        return self.definition.id


class Known:
    """The offsets of partitions as last read, so that unchanged ones are not read again."""

    def __init__(self, store: AsyncStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._unchanged = Unchanged(store, keys)
        self._offsets: dict[tuple[str, int], PartitionState] = {}

    def keep(self, topics: Sequence[Live]) -> None:
        """Forget the partitions of all other topics."""
        ids = {topic.id for topic in topics}
        self._unchanged.keep(topics)
        self._offsets = {key: each for key, each in self._offsets.items() if key[0] in ids}

    async def read(self, places: Sequence[tuple[Live, int]]) -> list[PartitionState | None]:
        """Return the partitions' offsets; None for those of topics deleted meanwhile."""
        due = await self._unchanged.due(places)
        replies = await self._store.run_many(
            self._keys.partition(topic.name, number, topic.id).list_offsets()
            for topic, number in due
        )
        for (topic, number), reply in zip(due, replies, strict=True):
            self._offsets.pop((topic.id, number), None)
            if not reply.error:
                self._offsets[topic.id, number] = PartitionState(
                    reply.start, reply.next, reply.tiered, reply.epoch
                )
                self._unchanged.settle(topic, number, ())
        return [self._offsets.get((topic.id, number)) for topic, number in places]


async def capture(
    store: AsyncStore,
    keys: Keys,
    cluster_id: str,
    lineage: str,
    known: Known | None = None,
    pause: Pause = no_pause,
) -> Snapshot:
    """Return the metadata as Redis has it now.

    `pause` spreads the commands over time. What the snapshot promises depends on the order of the
    reads alone: ends of logs, then groups and their commits.
    """
    live = await _live(store, keys)
    topics = await _topics(known or Known(store, keys), live, pause)
    configs = await _fields(store, keys.configs())
    users = await _fields(store, keys.users())
    acls = await _fields(store, keys.acls())
    deleted = await store.command("ZRANGE", keys.deleted_topics(), 0, -1)
    # The commits last: an end that was read before may be below one of them, never the reverse.
    names = [each.decode() for each in await _fields(store, keys.groups())]
    topic_ids = {state.definition.id for state in topics.values()}
    groups = await _groups(store, keys, names, topic_ids, pause)
    share_groups = await _share_groups(store, keys, names, topics, pause)
    scheduled = await capture_scheduled(store, keys, topics, pause)
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
    except (ValueError, RecursionError):
        return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


async def _fields(store: AsyncStore, key: str) -> dict[bytes, bytes]:
    flat = await store.command("HGETALL", key)
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    found.pop(VERSION_FIELD.encode(), None)
    return found


async def _live(store: AsyncStore, keys: Keys) -> list[Live]:
    """Return the topics that clients see; a change in progress is not part of them."""
    found = []
    for name, raw in (await _fields(store, keys.topics())).items():
        definition = _decode(raw, Definition)
        if definition is not None and definition.state == LIVE:
            definition = msgspec.structs.replace(definition, planned=0)
            found.append(Live(name.decode(), raw, definition))
    return found


async def _topics(known: Known, live: Sequence[Live], pause: Pause) -> dict[str, TopicState]:
    """Return the topics with the offsets of their partitions, without those deleted meanwhile."""
    known.keep(live)
    places = [(topic, n) for topic in live for n in range(topic.definition.partitions)]
    states: dict[str, list[PartitionState | None]] = {topic.name: [] for topic in live}
    for some in chunks(places, LOOKED_AT):
        for (topic, _), state in zip(some, await known.read(some), strict=True):
            states[topic.name].append(state)
        await pause(len(some), 2 * len(places))
    found = {}
    for topic in live:
        partitions = [state for state in states[topic.name] if state is not None]
        if len(partitions) == topic.definition.partitions:
            found[topic.name] = TopicState(topic.definition, partitions)
    return found


async def _groups(
    store: AsyncStore, keys: Keys, names: Sequence[str], topic_ids: set[str], pause: Pause
) -> dict[str, list[CommitRow]]:
    found = {}
    for some in chunks(names, LOOKED_AT):
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
        await pause(len(some), 2 * len(names))
    return found


def _commits(flat: Sequence[bytes], topic_ids: set[str]) -> list[CommitRow]:
    """Return the commits on these topics, of a group's hash of offsets."""
    rows: list[CommitRow] = []
    for field, raw in zip(flat[::2], flat[1::2], strict=True):
        partition, commit = parse_field(field), parse_commit(raw)
        if partition is not None and commit is not None and commit.topic_id in {"", *topic_ids}:
            metadata = encode_group(commit.metadata)
            rows.append((*partition, commit.offset, commit.epoch, commit.topic_id, metadata))
    return sorted(rows)


async def _share_groups(
    store: AsyncStore,
    keys: Keys,
    names: Sequence[str],
    topics: Mapping[str, TopicState],
    pause: Pause,
) -> dict[str, list[ShareRow]]:
    """Return the start offsets of the share groups among groups of these encoded ids."""
    found = {}
    for some in chunks(names, LOOKED_AT):
        types = await gather(
            *(
                store.submit_command("HGET", keys.group(decode_group(name)).group, "type")
                for name in some
            )
        )
        for name, type in zip(some, types, strict=True):
            if type == b"share":
                found[name] = await _share_rows(store, keys, decode_group(name), topics, pause)
        await pause(len(some), 2 * len(names))
    return found


async def _share_rows(
    store: AsyncStore, keys: Keys, name: str, topics: Mapping[str, TopicState], pause: Pause
) -> list[ShareRow]:
    """Return the partitions that the group has read, of topics that exist."""
    flat = await store.command("HGETALL", keys.group(name).share_topics)
    rows: list[ShareRow] = []
    for topic, topic_id in zip(flat[::2], flat[1::2], strict=True):
        state = topics.get(topic.decode())
        if state is None or state.definition.id != topic_id.decode():
            continue
        for some in chunks(range(state.definition.partitions), LOOKED_AT):
            replies = await store.run_many(
                keys.partition(topic.decode(), number, state.definition.id).share_describe(
                    group=name, most=0
                )
                for number in some
            )
            rows += (
                (topic.decode(), number, reply.start, state.definition.id)
                for number, reply in zip(some, replies, strict=True)
                if not reply.error and reply.start >= 0
            )
            await pause(len(some), state.definition.partitions)
    return sorted(rows)
