"""Rebuild an empty Redis from the remote store: the newest snapshot, and the segments.

Rules
- A namespace that has any state is refused: a restore never merges.
- An offset that a client may have seen never gets other data, and is never out of range. The end
  of a log is above every known offset: of the snapshot, of the segments, of the commits. For what
  was appended after the snapshot, modes dense and bytes add a gap, and mode time ends at the
  present time.
- A definition is written after the logs of its topic: brokers see the topic once it is complete.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from time import time

import msgspec

from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.remote_log.recovery.chain import build_chain, list_objects
from korvet.remote_log.recovery.loader import Loader, end_log
from korvet.remote_log.recovery.report import (
    Loss,
    Report,
    RestoreRefused,
    ScheduledLoss,
    check,
    find_losses,
)
from korvet.remote_log.recovery.scheduled import restore_scheduled
from korvet.remote_log.recovery.snapshot import (
    CommitRow,
    PartitionState,
    ShareRow,
    Snapshot,
    SnapshotStore,
    TopicState,
)
from korvet.remote_log.store import SegmentStore
from korvet.scripts.call import decode_group
from korvet.scripts.keys import Keys
from korvet.security import credentials
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Definition, encode_definition

OFFSETS_PER_MS = 1000
"""Offsets that a partition may have got, per ms since the snapshot: the default gap."""
COMMITS_AT_ONCE = 500
AT_ONCE = 32
"""Max partitions, and max reads of the remote store, at a time."""


async def load_snapshot(segments: SegmentStore, cluster_id: str | None) -> Snapshot:
    """Return the newest snapshot of a cluster, by default of the only one of the store."""
    if cluster_id is None:
        found = [
            name
            for name in await segments.folders("")
            if await SnapshotStore(segments, name).numbers()
        ]
        if len(found) != 1:
            what = f"snapshots of {', '.join(found)}: add --cluster-id" if found else "no snapshot"
            raise RestoreRefused(f"{segments.url} has {what}.")
        cluster_id = found[0]
    snapshot = await SnapshotStore(segments, cluster_id).newest()
    if snapshot is None:
        raise RestoreRefused(f"{segments.url} has no snapshot of cluster {cluster_id!r}.")
    return snapshot


@dataclass(eq=False, repr=False)
class Restore:
    """A restore of a snapshot into a namespace.

    `only_segments`: logs end where their segments do, for a broker that takes no records.
    `settings`: write the records into Redis, by these settings; None leaves them in the segments.
    `on_partition` is called after each partition.
    """

    store: AsyncStore
    keys: Keys
    segments: SegmentStore
    snapshot: Snapshot
    gap: int | None = None
    _: KW_ONLY
    only_segments: bool = False
    settings: Settings | None = None
    on_partition: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        age_ms = max(1000, int(time() * 1000) - self.snapshot.created_ms)
        self._gap = age_ms * OFFSETS_PER_MS if self.gap is None else self.gap
        self._loader: Loader | None = None
        if self.settings is not None:
            self._loader = Loader(
                self.store,
                self.keys,
                self.segments,
                self.snapshot,
                TopicConfigs(self.settings),
                self.settings,
            )
        self._ends: dict[tuple[str, int], int] = {}
        self._limit = asyncio.Semaphore(AT_ONCE)
        self._lost: list[Loss] = []
        self._counts = {"segments": 0, "records": 0}

    async def run(self) -> Report:
        """Restore everything. Raises RestoreRefused before any write."""
        await self._refuse_state()
        snapshot, keys = self.snapshot, self.keys
        unknown = await self._unknown_topics()
        await self.store.run(keys.broker_init_cluster_id(cluster_id=snapshot.cluster_id))
        commits = snapshot.highest_commits()
        for name, state in snapshot.topics.items():
            await self._topic(name, state, commits)
        await _tables(self.store, keys, snapshot)
        await self._groups()
        scheduled, scheduled_lost = await self._scheduled()
        epochs = (each.epoch for state in snapshot.topics.values() for each in state.partitions)
        await self.store.run(keys.broker_raise_epoch([], begun=max(epochs, default=0), by_time=1))
        # Last: brokers on a Redis that is restored in part must not replace the snapshots. What is
        # restored from a backup is not the Redis of any remote store.
        lineage = secrets.token_hex(16) if snapshot.is_backup else snapshot.lineage
        await self.store.run(keys.broker_init_lineage(lineage=lineage))
        return Report(
            cluster_id=snapshot.cluster_id,
            snapshot_ms=snapshot.created_ms,
            **snapshot.counts(),
            **self._counts,
            lost=sorted(self._lost, key=lambda each: (each.topic, each.partition, each.first)),
            unknown_topics=unknown,
            scheduled=scheduled,
            scheduled_lost=scheduled_lost,
            is_backup=snapshot.is_backup,
        )

    async def _refuse_state(self) -> None:
        keys = self.keys
        tables = (keys.topics(), keys.cluster(), keys.brokers(), keys.groups())
        for key in (*tables, keys.configs(), keys.users(), keys.acls()):
            if await self.store.command("EXISTS", key):
                raise RestoreRefused(
                    f"Redis has state in namespace {keys.namespace!r} (key {key}): stop its "
                    "brokers, and restore into an empty Redis or another --namespace."
                )

    async def _unknown_topics(self) -> list[str]:
        """Return the ids of topics with objects that the snapshot does not have."""
        folders = set(await self.segments.folders(self.snapshot.cluster_id))
        known = {state.definition.id for state in self.snapshot.topics.values()}
        return sorted(folders - known - {"metadata", *self.snapshot.deleted_topics})

    # Topics.

    async def _topic(
        self, name: str, state: TopicState, commits: dict[tuple[str, int], int]
    ) -> None:
        partitions = list(enumerate(state.partitions))
        for some in chunks(partitions, AT_ONCE):
            await asyncio.gather(
                *(
                    self._partition(name, number, state, each, commits.get((name, number), 0))
                    for number, each in some
                )
            )
        definition = state.definition
        reply = await self.store.run(
            self.keys.topic_create(
                self.keys.logs(name, range(0)),
                topic=name,
                definition=encode_definition(definition),
                topic_id=definition.id,
                **definition.shape,
            )
        )
        check(reply.error, f"topic {name}")

    async def _partition(
        self, name: str, number: int, state: TopicState, partition: PartitionState, committed: int
    ) -> None:
        definition, start = state.definition, partition.start
        where = (self.snapshot.cluster_id, definition.id, number)
        handle = self.keys.partition(name, number, definition.id)
        objects = await list_objects(self.segments, *where, self._limit)
        chain = build_chain(objects, start, partition.tiered)
        if chain.rows:
            start = max(start, chain.rows[0][0])
        end = self._end(partition, max(chain.end, start), committed, definition)
        self._ends[name, number] = end
        known = partition.tiered if self.snapshot.is_backup else partition.next
        self._lost += find_losses(name, number, chain, max(start, partition.tiered), known)
        loader = self._loader
        reached = max(start, chain.end) if loader is None else start
        reply = await self.store.run(
            handle.restore(
                chain.rows if loader is None else [],
                **definition.shape,
                epoch=partition.epoch,
                start=start,
                next=min(reached, end),
            )
        )
        check(reply.error, f"the log of {name}-{number}")
        if loader is not None:
            corrupt = await loader.load(name, number, definition, chain.rows, start)
            self._lost += [Loss(name, number, *row[:2], "corrupt") for row in corrupt if row[2]]
        await end_log(self.store, handle, definition, end)
        self._counts["segments"] += len(chain.rows)
        self._counts["records"] += sum(row[2] for row in chain.rows)
        self.on_partition()

    def _end(
        self, partition: PartitionState, copied: int, committed: int, definition: Definition
    ) -> int:
        """Return the end of a log whose segments end at `copied`."""
        if self.only_segments:
            return copied
        end = max(partition.next, copied, committed)
        if definition.configs["offset.mode"] != "time":
            return end + self._gap
        return max(end, int(time() * 1000) << int(definition.configs["offset.bits"]))

    # Groups.

    async def _groups(self) -> None:
        for encoded, rows in self.snapshot.groups.items():
            name = decode_group(encoded)
            for some in chunks(rows, COMMITS_AT_ONCE):
                await self._commit(name, some)
        for encoded, starts in self.snapshot.share_groups.items():
            name = decode_group(encoded)
            error = await _share_group(self.store, self.keys, name, starts, self._committed)
            check(error, f"offsets of share group {name}")

    async def _commit(self, name: str, rows: Sequence[CommitRow]) -> None:
        keys = self.keys
        decoded = [
            (*row[:2], self._committed(*row[:3]), *row[3:5], decode_group(row[5])) for row in rows
        ]
        call = keys.group(name).commit(
            keys.commit_rows(decoded),
            member="",
            instance="",
            generation=-1,
            allow_member_epoch=0,
            is_registered=1,
            retention_ms=-1,
        )
        await self.store.run(keys.group_register(group=name))
        reply = await self.store.run(call)
        check(reply.error, f"offsets of group {name}")
        if reply.wait_ms >= 0:
            await self.store.run(keys.group_schedule_tick(group=name, after_ms=reply.wait_ms))

    async def _scheduled(self) -> tuple[int, list[ScheduledLoss]]:
        """Schedule records again, unless nothing is appended; return their number and losses."""
        count, lost = 0, []
        for each in () if self.only_segments else self.snapshot.scheduled:
            if not each.rows:
                lost.append(ScheduledLoss(each.topic, each.partition, each.records))
            topic_id = self.snapshot.topics[each.topic].definition.id
            error, added = await restore_scheduled(self.store, self.keys, topic_id, each)
            check(error, f"scheduled records of {each.topic}-{each.partition}")
            count += added
        return count, lost

    def _committed(self, name: str, number: int, offset: int) -> int:
        """Return a committed offset: at most the end of the log that is served."""
        return min(offset, self._ends.get((name, number), offset))


async def _tables(store: AsyncStore, keys: Keys, snapshot: Snapshot) -> None:
    """Write configs, ACL rules, users and the ids of deleted topics. Raises RestoreRefused."""
    for resource, configs in snapshot.configs.items():
        wanted = msgspec.json.encode(configs, order="deterministic")
        call = keys.config_alter(resource=decode_group(resource), expected=b"", wanted=wanted)
        check((await store.run(call)).error, f"configs of {resource}")
    if snapshot.acls:
        rules = [rule.encode("utf-8", "surrogateescape") for rule in snapshot.acls]
        await store.run(keys.acl_create(rules))
    for field, raw in snapshot.users.items():
        mechanism, _, name = decode_group(field).partition(":")
        credential = credentials.decode(raw.encode())
        if credential is not None:
            rows = [(mechanism, raw.encode(), credential.shape)]
            call_user = keys.user_alter(rows, user=name, condition="")
            check((await store.run(call_user)).error, f"user {name}")
    for topic_id in snapshot.deleted_topics:
        await _note_deleted(store, keys, topic_id)


async def _note_deleted(store: AsyncStore, keys: Keys, topic_id: str) -> None:
    """Store the id of a deleted topic, so that brokers delete its objects."""
    call = keys.topic_create(
        keys.logs(topic_id, range(0)),
        topic=topic_id,
        definition=b"{}",
        topic_id=topic_id,
        format="batch",
        mode="dense",
        bits=0,
    )
    await store.run(call)
    await store.run(
        keys.topic_delete_definition(topic=topic_id, expected=b"{}", remote_id=topic_id)
    )


async def _share_group(
    store: AsyncStore,
    keys: Keys,
    name: str,
    rows: Sequence[ShareRow],
    offset_of: Callable[[str, int, int], int],
) -> ErrorCode:
    """Create the group without members, and move it to `offset_of` its start offsets."""
    await store.run(keys.group_register(group=name))
    topics = sorted({(topic, topic_id) for topic, _, _, topic_id in rows})
    reply = await store.run(keys.group(name).share_alter_topics(topics, creates=1, is_registered=1))
    if reply.error:
        return ErrorCode(reply.error)
    replies = await store.run_many(
        keys.partition(topic, number, topic_id).share_reset(
            group=name, offset=offset_of(topic, number, start)
        )
        for topic, number, start, topic_id in rows
    )
    return next((ErrorCode(each.error) for each in replies if each.error), ErrorCode.NONE)
