"""`__consumer_offsets`: the committed offsets of groups, as the records that Kafka writes for them.

Rules
- Nothing is stored for the topic. A read builds its records from the groups' offsets in Redis, at
  most once in REFRESH_S, and only if a client asks.
- It is like a compacted log: each group, topic and partition has one record, of the last commit.
  Commits that are replaced, deleted or expired leave it without a tombstone.
- An offset is the millisecond of the commit and a number, counted so that the last record of a
  millisecond has the highest. A read returns whole milliseconds, and only those before the moment
  at which it began, in which no commit can follow. So a reader that continues misses none.
- Records have the key and the value of Kafka 4.0 (versions 1 and 3), which every tool reads. Kafka
  4.3 writes values of version 4, with the topic's id, which older tools refuse.
"""

import asyncio
import struct
from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from time import monotonic, time
from typing import NamedTuple
from uuid import UUID

from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.config.topic_policy import TopicConfigs
from korvet.groups.lag import redis_ms
from korvet.groups.offset_commit import CommittedOffset, parse_commit, parse_field
from korvet.groups.registry import GroupRegistry
from korvet.log.read_result import ReadResult
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Definition, Topic, encode_definition
from korvet.wire.batch_builder import build
from korvet.wire.records import Buffer, Record

NAME = "__consumer_offsets"
PARTITIONS = 50
BITS = 20
REFRESH_S = 1.0
MAX_SHARE = 0.05
"""Largest share of the time that reading the groups may take."""
GROUPS_AT_ONCE = 100
CLOCK_MARGIN_MS = 2_000
"""On a Redis Cluster: how far the clocks of its nodes and of this process may differ."""
_ID = UUID("6b6f7276-6574-4f66-8000-5f5f6f666673")
_CONFIGS = {
    "cleanup.policy": "compact",
    "offset.bits": "10",
    "offset.mode": "dense",
    "storage.format": "batch",
}


class _Row(NamedTuple):
    """The last commit of one partition by a group: its time, and the record's key and value."""

    time_ms: int
    key: bytes
    value: bytes


class OffsetsView:
    """The topic, and the records of its partitions."""

    def __init__(
        self, store: AsyncStore, keys: Keys, registry: GroupRegistry, configs: TopicConfigs
    ) -> None:
        policy = configs.policy(NAME, _CONFIGS)
        raw = encode_definition(Definition(_ID.hex, PARTITIONS, _CONFIGS))
        self.topic = Topic(NAME, _ID.hex, _ID, PARTITIONS, _CONFIGS, policy, raw, keys)
        self._store = store
        self._keys = keys
        self._registry = registry
        self._rows: list[list[_Row]] = [[] for _ in range(PARTITIONS)]
        self._ends = [0] * PARTITIONS
        self._next_refresh = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._is_listed = False

    async def listed(self, stored: list[Topic]) -> list[Topic]:
        """Return all topics by name: with this one once a client named a group, as in Kafka."""
        if not self._is_listed:
            self._is_listed = bool(await self._store.command("EXISTS", self._keys.groups()))
        if not self._is_listed or any(topic.name == NAME for topic in stored):
            return stored
        return sorted([self.topic, *stored], key=attrgetter("name"))

    async def list_from_now(self) -> None:
        """List the topic: a client asks for the coordinator of a group. Raises StoreError."""
        if not self._is_listed:
            await self._registry.make()
            self._is_listed = True

    async def bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the end of a partition."""
        await self._refresh()
        return 0, self._ends[partition]

    async def find_time(self, partition: int, timestamp: int) -> tuple[int, int] | None:
        """Return timestamp and offset of the first record at or after a time, None without one."""
        await self._refresh()
        rows = self._rows[partition]
        at = bisect_left(rows, timestamp, key=itemgetter(0))
        if at == len(rows):
            return None
        found = rows[at].time_ms
        count = bisect_left(rows, found + 1, key=itemgetter(0)) - at
        return found, (found + 1 << BITS) - count

    async def newest(self, partition: int) -> tuple[int, int] | None:
        """Return timestamp and offset of the newest record, None without one."""
        await self._refresh()
        rows = self._rows[partition]
        return (rows[-1].time_ms, self._ends[partition] - 1) if rows else None

    async def read(self, partition: int, offset: int, max_bytes: int) -> ReadResult:
        """Read whole milliseconds from an offset on, at least one; none at the end."""
        await self._refresh()
        end, rows = self._ends[partition], self._rows[partition]
        if offset < 0 or offset > max(end, int(time() * 1000) + 1 << BITS):
            return ReadResult(ErrorCode.OFFSET_OUT_OF_RANGE, start=0, end=end)
        batches: list[Buffer] = []
        size = records = 0
        following = max(offset, end)
        start = bisect_left(rows, offset >> BITS, key=itemgetter(0))
        for time_ms, group in groupby(rows[start:], key=itemgetter(0)):
            batch = _batch(time_ms, list(group))
            if batches and size + len(batch[0]) > max_bytes:
                following = batch[1]
                break
            batches.append(batch[0])
            size += len(batch[0])
            records += batch[2]
        return ReadResult(
            ErrorCode.NONE,
            start=0,
            end=max(offset, end),
            size=size,
            batches=batches,
            next_offset=following,
            record_count=records,
        )

    async def _refresh(self) -> None:
        """Read the groups, unless that was done within REFRESH_S; callers share one read."""
        if self._reading is None:
            if monotonic() < self._next_refresh:
                return
            self._reading = asyncio.create_task(self._read_groups())
            self._reading.add_done_callback(self._reading_done)
        await asyncio.shield(self._reading)

    def _reading_done(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # those who wait for it get it; there may be none left

    async def _read_groups(self) -> None:
        began = monotonic()
        limit_ms = await self._now_ms()
        names = await self._registry.scan_all()
        found: list[list[_Row]] = [[] for _ in range(PARTITIONS)]
        for some in chunks(names, GROUPS_AT_ONCE):
            replies = await asyncio.gather(
                *(self._store.command("HGETALL", self._keys.group_offsets(name)) for name in some)
            )
            for name, flat in zip(some, replies, strict=True):
                found[partition_of(name)] += _rows_of(name, flat, limit_ms)
                await asyncio.sleep(0)
        for rows in found:
            rows.sort()
        self._rows = found
        # An end never steps back here, where a consumer's position may be.
        self._ends = [
            max(end, rows[-1].time_ms + 1 << BITS) if rows else end
            for end, rows in zip(self._ends, found, strict=True)
        ]
        now = monotonic()
        self._next_refresh = now + max(REFRESH_S, (now - began) / MAX_SHARE)

    async def _now_ms(self) -> int:
        """Return the moment before which no further commit can be."""
        if self._store.is_cluster:
            return int(time() * 1000) - CLOCK_MARGIN_MS
        return await redis_ms(self._store)


def partition_of(group: str) -> int:
    """Return the partition that Kafka chooses for a group: Java's hash of its id."""
    units = group.encode("utf-16-le", "replace")
    found = 0
    for (unit,) in struct.iter_unpack("<H", units):
        found = found * 31 + unit & 0xFFFFFFFF
    # A signed integer, and Kafka's absolute value of it: 0 for the one that has none.
    signed = found - (found >> 31 << 32)
    return (abs(signed) if found != 0x80000000 else 0) % PARTITIONS


def _rows_of(group: str, flat: Sequence[bytes], limit_ms: int) -> list[_Row]:
    """Return the records of a group's commits before the limit."""
    rows = []
    for field, raw in zip(flat[::2], flat[1::2], strict=True):
        partition, commit = parse_field(field), parse_commit(raw)
        if partition is not None and commit is not None and commit.time_ms < limit_ms:
            rows.append(
                _Row(max(commit.time_ms, 0), encode_key(group, *partition), encode_value(commit))
            )
    return rows


def encode_key(group: str, topic: str, partition: int) -> bytes:
    """Encode OffsetCommitKey version 1."""
    return struct.pack(">h", 1) + _text(group) + _text(topic) + struct.pack(">i", partition)


def encode_value(commit: CommittedOffset) -> bytes:
    """Encode OffsetCommitValue version 3."""
    head = struct.pack(">hqi", 3, commit.offset, commit.epoch)
    return head + _text(commit.metadata) + struct.pack(">q", max(commit.time_ms, 0))


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack(">h", len(raw)) + raw


def _batch(time_ms: int, rows: Sequence[_Row]) -> tuple[bytearray, int, int]:
    """Return the batch of a millisecond, its first offset and its number of records."""
    base = (time_ms + 1 << BITS) - len(rows)
    records: list[Record] = [
        (base + at, time_ms, row.key, row.value, []) for at, row in enumerate(rows)
    ]
    return build(records), base, len(rows)
