"""Measure scheduled records: rate in and out, and how late each is appended and fetched.

The offsets of offset.mode=time hold the time of the append: so the figures of the append are
Redis's own, and do not depend on the load of this process.
"""

import asyncio
import struct
import time
from dataclasses import dataclass

from korvet.testing.bench import frames
from korvet.testing.bench.connection import Connection
from korvet.testing.bench.latency import quantile
from korvet.testing.bench.load import Tally, Target, connections, measured, topic
from korvet.testing.bench.payloads import values
from korvet.wire import batch_builder, records

OFFSET_BITS = 10
DUE = "korvet-deliver-at"
CONFIGS = {"delivery.schedule.enable": "true", "offset.mode": "time", "offset.bits": "10"}
PREPARATION_S = 0.5
"""Seconds between the last batch built and the first sent."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Batches of `records` records at `rate` records per second, each due after `delay_ms`."""

    rate: int = 10_000
    records: int = 50
    size: int = 100
    delay_ms: int = 2000

    async def run(self, target: Target) -> dict[str, float]:
        """Return milliseconds from the due time of a record to its append and its arrival."""
        async with (
            topic(target, "bench-scheduled", 1, CONFIGS) as name,
            connections(target, 2) as opened,
        ):
            run = _Run(self, target, name, opened[0], opened[1])
            tally = Tally()
            async with measured(target, tally):
                await run.finish()
        row = {
            "records": len(run.appended),
            "records_per_s": round(self.rate * run.sent_share),
            "early": sum(late < 0 for late in run.appended),
            "append_p50_ms": quantile(run.appended, 0.50),
            "append_p99_ms": quantile(run.appended, 0.99),
            "append_max_ms": quantile(run.appended, 1.0),
            "arrival_p50_ms": quantile(run.arrived, 0.50),
            "arrival_p99_ms": quantile(run.arrived, 0.99),
        }
        if target.pids:
            row["cpu_us_per_record"] = round(tally.broker_cpu / len(run.appended) * 1e6, 1)
        return row


class _Run:
    def __init__(
        self, plan: Scheduled, target: Target, name: str, out: Connection, back: Connection
    ) -> None:
        self._plan, self._name, self._out, self._back = plan, name, out, back
        self._batches = max(1, int(target.seconds * plan.rate / plan.records))
        self._replies: list[tuple[float, bytes]] = []
        self._fetched = self._acks = self._position = 0
        self._reply_of = frames.FetchReply(name)
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent_share = 1.0
        """Share of the rate at which the batches were acknowledged."""
        self.appended: list[float] = []
        self.arrived: list[float] = []
        out.on_reply, back.on_reply = self._acknowledged, self._fetch_reply

    async def finish(self) -> None:
        """Send all batches, and wait until every record is fetched."""
        plan, gap_s = self._plan, self._plan.records / self._plan.rate
        payload = values(plan.records, plan.size)
        began = time.time()
        build_s = self._batches * plan.records * 15e-6 + PREPARATION_S
        start = began + build_s
        due = [start * 1000 + plan.delay_ms + n * 1000 / plan.rate for n in range(plan.records)]
        requests = []
        for number in range(self._batches):
            step_ms = number * gap_s * 1000
            rows: list[records.Record] = [
                (n, int(began * 1000), None, value, [(DUE, b"%d" % (due[n] + step_ms))])
                for n, value in enumerate(payload)
            ]
            requests.append(frames.produce(self._name, {0: bytes(batch_builder.build(rows))}))
        self._poll()
        for number, request in enumerate(requests):
            pause = start + number * gap_s - time.time()
            if pause > 0:
                await asyncio.sleep(pause)
            self._out.send(request)
        limit_s = plan.delay_ms / 1000 + 60
        losses = {self._out.closed, self._back.closed}
        await asyncio.wait(
            {self._done, *losses}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not self._done.done():
            wanted = self._batches * plan.records
            raise frames.Refused(f"of {wanted} records {self._fetched} were fetched")
        self.sent_share = self._batches * gap_s / max(self._acked_at - start, 1e-9)
        self._evaluate()

    def _poll(self) -> None:
        self._back.send(frames.fetch(self._name, 0, self._position))

    def _acknowledged(self, reply: memoryview) -> None:
        frames.ProduceReply(self._name).base_offset(reply)
        self._acks += 1
        self._acked_at = time.time()

    def _fetch_reply(self, reply: memoryview) -> None:
        found, _, reached = self._reply_of.read(reply, 1 << 62)
        if found:
            self._replies.append((time.time(), bytes(reply)))
            self._position, self._fetched = reached, self._fetched + found
        if self._fetched >= self._batches * self._plan.records and not self._done.done():
            self._done.set_result(None)
        else:
            self._poll()

    def _evaluate(self) -> None:
        """Compare the due time of every record with its offset and its arrival, in seconds."""
        for arrival, reply in self._replies:
            for batch in _batches(self._name, reply):
                for offset, _, _, _, headers in records.records_of(batch):
                    due = int(dict(headers)[DUE] or b"0")
                    self.appended.append(((offset >> OFFSET_BITS) - due) / 1000)
                    self.arrived.append(arrival - due / 1000)


def _batches(name: str, reply: bytes) -> list[bytes]:
    """Return the record batches of a Fetch v11 reply."""
    at = 4 + 4 + 2 + 4 + 4 + 2 + len(name) + 4 + 4 + 2 + 8 + 8 + 8
    (aborted,) = struct.unpack_from(">i", reply, at)
    at += 4 + max(aborted, 0) * 16 + 4 + 4
    found = []
    while at + records.HEADER_SIZE <= len(reply):
        (length,) = struct.unpack_from(">i", reply, at + 8)
        found.append(reply[at : at + records.LOG_OVERHEAD + length])
        at += records.LOG_OVERHEAD + length
    return found
