"""Read a topic some records behind its end, check each batch, commit; a process of `budget`.

Reads one JSON line from standard input, the log ends at which to stop, and prints one JSON line.
"""

import asyncio
import json
import struct
import sys
import threading
import time

from crc32c import crc32c

from korvet.testing.bench import frames
from korvet.testing.bench.connection import Connection
from korvet.testing.bench.load import Target, connections

COMMIT_S, REST_S = 0.5, 0.02
PATIENCE_S = 60.0
"""Seconds without a record after which the reader gives up."""
MAX_BYTES = 2 << 20
OFFSET_COMMIT = 8
HEADER_SIZE, LOG_OVERHEAD = 61, 12


class Wrong(Exception):
    """A batch that was not sent so, or an offset that is missing; the message says which."""


def commit(group: str, topic: str, positions: list[int]) -> bytes:
    """Encode OffsetCommit v7 of a group without members."""
    body = frames.text(group) + struct.pack(">i", -1) + frames.text("") + b"\xff\xff"
    body += struct.pack(">i", 1) + frames.text(topic) + struct.pack(">i", len(positions))
    for partition, offset in enumerate(positions):
        body += struct.pack(">iqi", partition, offset, -1) + frames.text("")
    return frames.frame(OFFSET_COMMIT, 7, body)


class Partition:
    """A partition's log as it is read: each batch follows the one before."""

    def __init__(self, topic: str, number: int, crcs: list[int] | None) -> None:
        self._topic, self._number, self._crcs = topic, number, crcs
        self._place = f"{topic}-{number}"
        self.position = self.high_watermark = self.batches = self.bytes = 0

    @property
    def request(self) -> bytes:
        return frames.fetch(
            self._topic, self._number, self.position, max_bytes=MAX_BYTES, max_wait_ms=100
        )

    def take(self, reply: bytes) -> bool:
        """Check the reply's batches; return whether there were any. Raises Wrong."""
        at = 4 + 4 + 2 + 4 + 4 + 2 + len(self._topic) + 4
        _, error, self.high_watermark = struct.unpack_from(">ihq", reply, at)
        if error:
            raise Wrong(f"{self._place}: Fetch at {self.position}: error code {error}")
        at += 4 + 2 + 8 + 8 + 8
        (aborted,) = struct.unpack_from(">i", reply, at)
        at += 4 + max(aborted, 0) * 16 + 4
        (size,) = struct.unpack_from(">i", reply, at)
        view, at = memoryview(reply), at + 4
        end = at + max(size, 0)
        begin = self.position
        while at + HEADER_SIZE <= end:
            base, length = struct.unpack_from(">qi", view, at)
            if at + LOG_OVERHEAD + length > end:
                break
            self._check(view[at : at + LOG_OVERHEAD + length], base)
            at += LOG_OVERHEAD + length
        return self.position > begin

    def _check(self, batch: memoryview, base: int) -> None:
        """Check that the batch is whole and the next one, and move on. Raises Wrong."""
        if base != self.position:
            raise Wrong(f"{self._place}: offset {base} in place of {self.position}")
        (crc,) = struct.unpack_from(">I", batch, 17)
        if crc32c(batch[21:]) != crc:
            raise Wrong(f"{self._place}: the CRC of the batch at {base} differs")
        if self._crcs and crc != self._crcs[self.batches % len(self._crcs)]:
            raise Wrong(f"{self._place}: another batch at {base} than was sent")
        (last,) = struct.unpack_from(">i", batch, 23)
        self.position = base + last + 1
        self.batches += 1
        self.bytes += len(batch)


class Reader:
    """Reads all partitions `behind` records behind their ends, and commits."""

    def __init__(self, plan: dict[str, object]) -> None:
        self._group, self._topic = str(plan["group"]), str(plan["topic"])
        self._behind = int(str(plan["behind"]))
        crcs = plan["crcs"]
        assert isinstance(crcs, list)
        self._ends: list[int] | None = None
        count = int(str(plan["partitions"]))
        self.partitions = [Partition(self._topic, n, crcs) for n in range(count)]
        self.slowest_s = 0.0

    def end_at(self, ends: list[int]) -> None:
        """Let the reader read up to these offsets, and stop there."""
        self._ends = ends

    async def run(self, address: str) -> None:
        """Read to the ends, which `end_at` gives meanwhile."""
        async with connections(Target(address), len(self.partitions) + 1) as opened:
            *own, control = opened
            commits = asyncio.create_task(self._commit(control))
            try:
                async with asyncio.TaskGroup() as group:
                    for number, connection in enumerate(own):
                        group.create_task(self._read(number, connection))
            finally:
                commits.cancel()
            await control.ask(self._positions())

    def _positions(self) -> bytes:
        return commit(self._group, self._topic, [each.position for each in self.partitions])

    async def _commit(self, control: Connection) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            await asyncio.shield(control.ask(self._positions()))

    async def _read(self, number: int, connection: Connection) -> None:
        partition, began = self.partitions[number], time.monotonic()
        while self._ends is None or partition.position < self._ends[number]:
            if self._ends is None and await self._is_near(number, connection):
                await asyncio.sleep(REST_S)
                began = time.monotonic()
                continue
            if partition.take(await connection.ask(partition.request)):
                now = time.monotonic()
                self.slowest_s, began = max(self.slowest_s, now - began), now
            elif time.monotonic() - began > PATIENCE_S:
                raise Wrong(f"partition {number}: no record at {partition.position} in 60 s")

    async def _is_near(self, number: int, connection: Connection) -> bool:
        """Return whether the log's end is not `behind` records ahead yet."""
        partition = self.partitions[number]
        if partition.high_watermark - partition.position < self._behind:
            reply = await connection.ask(frames.list_offsets(self._topic, number + 1))
            _, partition.high_watermark = frames.listed(memoryview(reply), self._topic)[number]
        return partition.high_watermark - partition.position < self._behind


async def main(address: str, plan: dict[str, object]) -> None:
    """Read as the plan says; print what was found."""
    reader, loop = Reader(plan), asyncio.get_running_loop()

    def wait_for_ends() -> None:
        ends = json.loads(sys.stdin.readline() or "[]")
        loop.call_soon_threadsafe(reader.end_at, ends or [0] * len(reader.partitions))

    threading.Thread(target=wait_for_ends, daemon=True).start()
    error = ""
    try:
        await reader.run(address)
    except* Exception as errors:
        error = str(errors.exceptions[0])
    found = {
        "positions": [each.position for each in reader.partitions],
        "batches": sum(each.batches for each in reader.partitions),
        "bytes": sum(each.bytes for each in reader.partitions),
        "slowest_s": round(reader.slowest_s, 2),
        "error": error,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
