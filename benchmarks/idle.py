"""Open connections that send one request and stay idle; read the memory that the broker has."""

import asyncio
import time
from dataclasses import dataclass

from korvet.testing.bench import frames
from korvet.testing.bench.connection import Connection, connect
from korvet.testing.bench.load import Target, resident_bytes

AT_ONCE = 50
"""Connections that are opened concurrently."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Connections without requests in progress."""

    connections: int = 10_000

    async def run(self, target: Target) -> dict[str, float | int]:
        """Return seconds to open all, and the broker's memory, in all and per connection."""
        before = resident_bytes(target.pids)
        begin = time.perf_counter()
        opened: list[Connection] = []
        waiting = asyncio.Semaphore(AT_ONCE)

        async def open_one() -> None:
            async with waiting:
                connection = await connect(target.address, room=1024)
                await connection.ask(frames.metadata(None))
                opened.append(connection)

        await asyncio.gather(*(open_one() for _ in range(self.connections)))
        seconds = time.perf_counter() - begin
        resident = resident_bytes(target.pids)
        for connection in opened:
            connection.close()
        return {
            "connections": self.connections,
            "seconds": round(seconds, 1),
            "resident_mb": round(resident / 1e6),
            "kb_per_connection": round((resident - before) / self.connections / 1e3, 1),
        }
