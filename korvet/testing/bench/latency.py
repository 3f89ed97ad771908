"""Measure latency: single produces at a fixed rate, and a consumer in long poll."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from korvet.testing.bench import frames
from korvet.testing.bench.connection import Connection
from korvet.testing.bench.load import Tally, Target, connections, measured, topic
from korvet.testing.bench.payloads import batch


@dataclass(frozen=True, slots=True)
class Latency:
    """`count` single records at `rate` per second, acknowledged and fetched in long poll."""

    rate: int = 500
    count: int = 2_500
    size: int = 100

    async def run(self, target: Target) -> tuple[Tally, dict[str, float]]:
        """Return the milliseconds from sending a record to its acknowledgement and arrival."""
        async with topic(target, "bench-latency", 1) as name, connections(target, 2) as opened:
            tally = Tally()
            async with measured(target, tally):
                run = _Run(self, name, opened[0], opened[1])
                await run.finish()
            tally.requests = tally.records = self.count
            tally.payload = self.count * self.size
            return tally, {
                "ack_p50_ms": quantile(run.acks, 0.50),
                "ack_p99_ms": quantile(run.acks, 0.99),
                "end_to_end_p50_ms": quantile(run.arrivals, 0.50),
                "end_to_end_p99_ms": quantile(run.arrivals, 0.99),
            }


class _Run:
    def __init__(self, plan: Latency, name: str, out: Connection, back: Connection) -> None:
        self._plan, self._name, self._out, self._back = plan, name, out, back
        self._sent: list[float] = []
        self.acks: list[float] = []
        self.arrivals: list[float] = []
        self._reply_of = frames.FetchReply(name)
        self._position = 0
        self._frame = frames.produce(name, {0: batch(1, plan.size)})
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        out.on_reply = self._acknowledged
        back.on_reply = self._arrived

    async def finish(self) -> None:
        """Send every record and wait until all are acknowledged and fetched."""
        self._poll()
        begin = time.perf_counter()
        for index in range(self._plan.count):
            pause = begin + index / self._plan.rate - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            self._sent.append(time.perf_counter())
            self._out.send(self._frame)
        losses = {self._out.closed, self._back.closed}
        await asyncio.wait({self._done, *losses}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        for loss in losses:
            if loss.done():
                loss.result()
        if not self._done.done():
            raise frames.Refused(
                f"after 30 s, of {self._plan.count} records {len(self.acks)} were acknowledged"
                f" and {len(self.arrivals)} fetched"
            )

    def _poll(self) -> None:
        self._back.send(frames.fetch(self._name, 0, self._position))

    def _acknowledged(self, reply: memoryview) -> None:
        frames.ProduceReply(self._name).base_offset(reply)
        self.acks.append(time.perf_counter() - self._sent[len(self.acks)])
        self._finish()

    def _arrived(self, reply: memoryview) -> None:
        now = time.perf_counter()
        records, _, reached = self._reply_of.read(reply, 1 << 62)
        if records:
            self._position = reached
            for index in range(len(self.arrivals), len(self.arrivals) + records):
                self.arrivals.append(now - self._sent[index])
        if not self._finish():
            self._poll()

    def _finish(self) -> bool:
        finished = len(self.acks) == len(self.arrivals) == self._plan.count
        if finished and not self._done.done():
            self._done.set_result(None)
        return finished


def quantile(seconds: Sequence[float], share: float) -> float:
    """Return the quantile `share` in milliseconds."""
    ordered = sorted(seconds)
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 3)
