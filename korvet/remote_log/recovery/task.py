"""The background task that writes snapshots, in one broker process at a time."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

import msgspec

from korvet.base import logfmt
from korvet.log.unchanged import pace
from korvet.remote_log.recovery.capture import Known, capture, versions
from korvet.remote_log.recovery.snapshot import Snapshot, SnapshotStore, encode
from korvet.remote_log.store import SegmentStore
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError

CHECK_S = 1.0
"""Seconds between two checks for changed topics, configs, ACLs and users."""
LEASE_S = 30.0
LEASE = "metadata-snapshot"
PAUSE_PER_WORK_S = 20.0
"""Seconds without a snapshot on change for each second of work on the last one."""
logger = logfmt.get("recovery.task")


@dataclass(eq=False, repr=False)
class SnapshotTask:
    """Writes a snapshot at an interval, and when a topic, config, ACL or user changes.

    The reads of the former are spread over time, until there is such a change.
    """

    store: AsyncStore
    keys: Keys
    segments: SegmentStore
    cluster_id: Callable[[], str]
    interval_s: Callable[[], float]
    hold: Callable[[str, float], Awaitable[bool]]

    def __post_init__(self) -> None:
        self._written: Snapshot | None = None
        self._versions: list[bytes | None] = []
        self._due_at = 0.0
        self._rests_until = 0.0
        self._paused_s = 0.0
        self._hurries = False
        self._known = Known(self.store, self.keys)

    async def run(self) -> None:
        """Run until cancelled. The library of the store is imported after the broker's start."""
        await asyncio.sleep(CHECK_S)
        await self.segments.load()
        while True:
            await self.run_once()
            await asyncio.sleep(CHECK_S)

    async def run_once(self) -> None:
        """Write a snapshot if one is due and this process has the lease; log a failure."""
        try:
            if not await self.hold(LEASE, LEASE_S):
                self._written = None
                return
            found, began = await versions(self.store, self.keys), monotonic()
            if began >= self._due_at or (found != self._versions and began >= self._rests_until):
                self._paused_s = 0.0
                # After a start all are unknown, which is no change.
                self._hurries = bool(self._versions) and found != self._versions
                self._versions = found
                await self.write()
                worked_s = monotonic() - began - self._paused_s
                self._rests_until = monotonic() + PAUSE_PER_WORK_S * worked_s
        except (StoreError, ValueError) as error:
            logger.error_again("metadata snapshot failed, retrying", reason=str(error))
            self._versions = []

    async def write(self) -> bool:
        """Write a snapshot unless nothing changed. Returns whether it was written."""
        self._due_at = monotonic() + self.interval_s()
        snapshots = SnapshotStore(self.segments, self.cluster_id())
        numbers = await snapshots.numbers()
        last = self._written or await snapshots.newest()
        lineage = await self._lineage(last)
        if lineage is None:
            logger.error_again(
                "metadata snapshot refused: the store has snapshots of another Redis",
                advice="if Redis lost its data, run `korvet restore`; if another cluster writes to "
                "this URL, give this one another; if neither, delete the snapshots",
            )
            return False
        current = await capture(
            self.store, self.keys, self.cluster_id(), lineage, self._known, self._pause
        )
        if last and msgspec.structs.replace(last, created_ms=current.created_ms) == current:
            return False
        await snapshots.write(encode(current), numbers)
        self._written = current
        return True

    async def _pause(self, done: int, total: int) -> None:
        """Wait as long as so many reads may take, of that total, unless a table changes."""
        if not self._hurries:
            pause_s = done / pace(total, self.interval_s())
            await asyncio.sleep(pause_s)
            self._paused_s += pause_s
            await self.hold(LEASE, LEASE_S)
            self._hurries = await versions(self.store, self.keys) != self._versions

    async def _lineage(self, last: Snapshot | None) -> str | None:
        """Return the lineage of this Redis; None if the last snapshot has another one."""
        if last is None:
            call = self.keys.broker_init_lineage(lineage=secrets.token_hex(16))
            return (await self.store.run(call)).lineage.decode()
        known = await self.store.command("HGET", self.keys.cluster(), "lineage")
        return last.lineage if known == last.lineage.encode() else None
