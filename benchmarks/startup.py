"""Measure a start: seconds to the first Metadata response, and idle memory."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence

from korvet.testing.bench import frames
from korvet.testing.bench.connection import connect
from korvet.testing.bench.load import cpu_seconds, own_bytes, process_tree, resident_bytes

TIMEOUT_S = 60.0
IDLE_S = 2.0


async def start(address: str, command: Sequence[str]) -> dict[str, float | int]:
    """Start `command`, measure its broker at `address`, and stop it."""
    begin = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    try:
        await _first_metadata(address, begin + TIMEOUT_S)
        seconds = time.perf_counter() - begin
        await asyncio.sleep(IDLE_S)
        roots = [process.pid]
        busy = cpu_seconds(roots)
        await asyncio.sleep(IDLE_S)
        return {
            "seconds_to_metadata": round(seconds, 3),
            "cpu_seconds_to_rest": round(busy, 2),
            "idle_cpu_share": round((cpu_seconds(roots) - busy) / IDLE_S, 4),
            "resident_mb": round(resident_bytes(roots) / 1e6, 1),
            "largest_process_mb": round(
                max(own_bytes(pid) for pid in process_tree(roots)) / 1e6, 1
            ),
        }
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        await process.wait()


async def _first_metadata(address: str, deadline: float) -> None:
    while True:
        try:
            connection = await connect(address)
            await connection.ask(frames.metadata(None))
        except OSError:
            if time.perf_counter() > deadline:
                raise
            await asyncio.sleep(0.01)
        else:
            connection.close()
            return
