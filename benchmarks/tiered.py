"""Measure reads from segments; a broker without a remote store reads its log."""

import asyncio
import struct
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from korvet.testing.bench import frames
from korvet.testing.bench.load import IN_FLIGHT, Tally, Target, connections
from korvet.testing.bench.throughput import Fetch, Range

COPY_TRIES, COPY_PAUSE_S = 1200, 0.1
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
TIERED = {
    "remote.storage.enable": "true",
    "local.retention.ms": "1",
    "segment.bytes": str(32 << 20),
    "segment.ms": "2000",
}
"""Topic configs with which all records leave Redis within seconds."""


@dataclass(frozen=True)
class TieredFetch(Fetch):
    """A Fetch of a log of which all is in segments, if the broker has a remote store.

    `again`: read it once before the timed part, so that caches have it.
    """

    again: bool = False

    def configs(self, target: Target) -> dict[str, str]:
        """Return the configs of the topic."""
        return super().configs(target) | (TIERED if target.is_tiered else {})

    async def prepare(self, target: Target, name: str, written: Collection[Range]) -> None:
        """Wait until the log is in segments, and read it if wanted."""
        if target.is_tiered:
            await _wait_for_segments(target, name, written)
        else:
            await super().prepare(target, name, written)
        if self.again:
            first = deque(Range(each.partition, each.start, each.stop) for each in written)
            await self.read(target, name, first, Tally())


def reads(case: Fetch, target: Target) -> dict[str, str | int]:
    """Return what a case reads: the broker's cache, a log larger than it, or segments."""
    log = case.batches(target) * case.records * case.size
    where = "cache" if log <= target.cache_bytes else "log"
    if isinstance(case, TieredFetch) and target.is_tiered:
        where = "segments"
    return {"reads": where, "log_mb": round(log / 1e6)}


async def _wait_for_segments(target: Target, name: str, written: Collection[Range]) -> None:
    """Wait until Redis has dropped the ranges; the last records of a partition may stay there."""
    request = list_newer(name, IN_FLIGHT, EARLIEST_LOCAL)
    async with connections(target, 1) as (connection,):
        for _ in range(COPY_TRIES):
            reply = memoryview(await connection.ask(request))
            starts = [offset for _, offset in listed_newer(reply, name)]
            if all(starts[part.partition] >= part.stop for part in written):
                return
            await asyncio.sleep(COPY_PAUSE_S)
    raise frames.Refused(f"{name}: records outside the remote store after 120 s: {starts}")


def list_newer(topic: str, partitions: int, timestamp: int) -> bytes:
    """Encode ListOffsets v9, which knows the offsets of tiered storage."""
    name = topic.encode()
    body = struct.pack(">hhi", frames.LIST_OFFSETS, 9, 0) + frames.text("korvet-bench") + b"\0"
    body += struct.pack(">ib", -1, 0) + b"\2" + bytes([len(name) + 1]) + name
    body += bytes([partitions + 1])
    for partition in range(partitions):
        body += struct.pack(">iiqb", partition, -1, timestamp, 0)
    body += b"\0\0"
    return struct.pack(">i", len(body)) + body


def listed_newer(reply: memoryview, topic: str) -> list[tuple[int, int]]:
    """Return (error code, offset) of each partition of a ListOffsets v9 reply for one topic."""
    at = 4 + 1 + 4 + 1 + 1 + len(topic)
    rows = struct.iter_unpack(">ihqqib", reply[at + 1 : at + 1 + (reply[at] - 1) * 27])
    return [(error, offset) for _, error, _, offset, _, _ in rows]
