"""Snapshots: the metadata of a cluster as an object of the remote store.

    header    JSON on one line: format, SHA-256 and bytes of the body
    body      JSON: Snapshot

Rules
- A snapshot is written once, as `<cluster id>/metadata/<number, 20 digits>.snapshot`, with the next
  number. Of two brokers that write the same number, the store refuses the second.
- The newest snapshot that verifies is in effect: a crash during a write leaves the previous one.
- Text that may be no UTF-8 is percent-encoded as group ids are in keys.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import msgspec

from korvet.base import logfmt
from korvet.remote_log.store import SegmentStore
from korvet.topics.table import Definition

FORMAT = 1
KEPT = 3
"""Snapshots that stay in the store: the newest, and earlier ones in case that is corrupt."""
LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""
logger = logfmt.get("recovery.snapshot")

CommitRow = tuple[str, int, int, int, str, str]
"""A committed offset: topic, partition, offset, leader epoch, topic id, encoded metadata."""

ShareRow = tuple[str, int, int, str]
"""A share group's start in a partition: topic, partition, offset, topic id."""


class CorruptSnapshot(ValueError):
    """A snapshot's bytes are not those that were written; the message says why."""


class PartitionState(msgspec.Struct, frozen=True):
    """The offsets of a partition: log start, end, and the end of what is copied (-1: nothing)."""

    start: int
    next: int
    tiered: int
    epoch: int


class TopicState(msgspec.Struct, frozen=True):
    """A topic's definition and its partitions."""

    definition: Definition
    partitions: list[PartitionState]


class ScheduledRecords(msgspec.Struct, frozen=True):
    """Records of a partition that wait until they are due: due time in ms and row of each.

    Without rows: there were too many for a snapshot.
    """

    topic: str
    partition: int
    records: int
    rows: list[tuple[int, bytes]]


class Snapshot(msgspec.Struct, frozen=True):
    """The metadata of a cluster."""

    cluster_id: str
    lineage: str
    """Random id of the Redis that the snapshots come from; see `broker.init_lineage`."""
    namespace: str
    created_ms: Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]
    topics: dict[str, TopicState]
    deleted_topics: list[str]
    """Ids of deleted topics whose objects may still exist."""
    configs: dict[str, dict[str, str]]
    """Dynamic configs and quotas, by resource."""
    users: dict[str, str]
    """SCRAM credentials, by mechanism and encoded name."""
    acls: list[str]
    groups: dict[str, list[CommitRow]]
    """Committed offsets, by encoded group id."""
    share_groups: dict[str, list[ShareRow]] = {}
    """Start offsets of share groups, by encoded group id."""
    scheduled: list[ScheduledRecords] = []
    is_backup: bool = False
    """Whether all records up to the ends of the logs are in the segments."""

    def counts(self) -> dict[str, int]:
        """Return the numbers of topics, partitions, groups, users and ACL rules."""
        return {
            "topics": len(self.topics),
            "partitions": sum(len(state.partitions) for state in self.topics.values()),
            "groups": len(self.groups) + len(self.share_groups),
            "users": len({field.partition("%3A")[2] for field in self.users}),
            "acls": len(self.acls),
        }

    def highest_commits(self) -> dict[tuple[str, int], int]:
        """Return the highest offset that any group has committed, by topic and partition."""
        found: dict[tuple[str, int], int] = {}
        places = [row[:3] for rows in self.groups.values() for row in rows]
        places += [row[:3] for rows in self.share_groups.values() for row in rows]
        for name, number, offset in places:
            found[name, number] = max(found.get((name, number), 0), offset)
        return found


class _Header(msgspec.Struct, frozen=True):
    sha256: str
    bytes: int
    format: int = FORMAT


def encode(snapshot: Snapshot) -> bytes:
    """Return the object of a snapshot."""
    body = msgspec.json.encode(snapshot, order="deterministic")
    header = _Header(hashlib.sha256(body).hexdigest(), len(body))
    return msgspec.json.encode(header) + b"\n" + body


def decode(data: bytes) -> Snapshot:
    """Return the snapshot of an object. Raises CorruptSnapshot."""
    line, _, body = data.partition(b"\n")
    try:
        header = msgspec.json.decode(line, type=_Header)
        if header.format != FORMAT:
            raise CorruptSnapshot(f"format {header.format} is unknown; this version has {FORMAT}")
        if header.bytes != len(body) or header.sha256 != hashlib.sha256(body).hexdigest():
            raise CorruptSnapshot("the checksum differs")
        found = msgspec.json.decode(body, type=Snapshot)
        for name, state in found.topics.items():
            if not _is_valid(state.definition):
                raise CorruptSnapshot(f"the definition of topic {name!r} is not valid")
        return found
    except (ValueError, RecursionError) as error:  # no JSON, or no UTF-8
        raise CorruptSnapshot(str(error)) from None


def _is_valid(definition: Definition) -> bool:
    """Return whether a broker could read the definition."""
    try:
        return UUID(hex=definition.id).hex == definition.id and bool(definition.shape)
    except (ValueError, KeyError):
        return False


class SnapshotStore:
    """The snapshots of one cluster."""

    def __init__(self, segments: SegmentStore, cluster_id: str) -> None:
        self._segments = segments
        self._folder = f"{cluster_id}/metadata"

    async def numbers(self) -> list[int]:
        """Return the numbers of the snapshots, in order."""
        names = [name.rpartition("/")[2] for name in await self._segments.names(self._folder)]
        found = (name.removesuffix(".snapshot") for name in names if name.endswith(".snapshot"))
        return sorted(int(number) for number in found if number.isdecimal())

    async def newest(self) -> Snapshot | None:
        """Return the newest snapshot that verifies, or None if there is none."""
        for number in reversed(await self.numbers()):
            try:
                return decode(await self._segments.read(self._name(number)))
            except CorruptSnapshot as error:
                logger.error("corrupt snapshot", object=self._name(number), reason=str(error))
        return None

    async def write(self, data: bytes, numbers: Sequence[int]) -> None:
        """Write the snapshot after those of `numbers`, then delete old ones.

        `numbers` were listed before the state was read: a snapshot written since is newer, and the
        store refuses this one.
        """
        number = max(numbers, default=0) + 1
        await self._segments.put(self._name(number), data)
        for old in sorted(numbers)[: -(KEPT - 1)]:
            await self._segments.delete(self._name(old))

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.snapshot"
