"""Measure the cost of idempotence: an idempotent producer and a plain one take turns."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.transactions import Producer
from korvet.testing.bench import frames
from korvet.testing.bench.load import Pump, Tally, Target, connections, drain, measured, topic
from korvet.testing.bench.payloads import batch

SLICES = 6
"""Turns of each producer: a change of the machine's speed then affects both."""
NO_SEQUENCE = -1


@dataclass(frozen=True, slots=True)
class Idempotent:
    """Requests with `records` of `size` bytes; each producer has a partition to itself."""

    records: int = 100
    size: int = 1000

    async def run(self, target: Target) -> dict[str, float]:
        """Return both rates, and the ratios of rate and CPU: idempotent over plain."""
        tallies = [Tally(), Tally()]
        async with topic(target, "bench-idempotent", 2) as name, connections(target, 2) as opened:
            plain, numbered = (Producer(connection, name, None) for connection in opened)
            await numbered.begin()
            sequences = itertools.count(0, self.records)
            pair = ((plain, 0, itertools.repeat(NO_SEQUENCE)), (numbered, 1, sequences))
            for _ in range(SLICES):
                for tally, (producer, partition, numbers) in zip(tallies, pair, strict=True):
                    await self._slice(target, producer, partition, numbers, tally)
        rates = [tally.records / tally.seconds for tally in tallies]
        costs = [tally.broker_cpu / tally.records for tally in tallies]
        return {
            "plain_records_per_s": round(rates[0]),
            "idempotent_records_per_s": round(rates[1]),
            "of_plain": round(rates[1] / rates[0], 3),
            "cpu_of_plain": round(costs[1] / costs[0], 3) if costs[0] else -1.0,
        }

    async def _slice(
        self,
        target: Target,
        producer: Producer,
        partition: int,
        numbers: Iterator[int],
        whole: Tally,
    ) -> None:
        tally = Tally()
        made = [bytearray(batch(self.records, self.size, seed=seed)) for seed in range(4)]
        left = target.megabytes * 1_000_000 // (self.records * self.size) // 2 // SLICES
        batches = itertools.islice(itertools.cycle(made), max(left, 1))
        deadline = time.perf_counter() + target.seconds / SLICES
        reply_of = frames.ProduceReply(producer.topic)

        def following() -> bytes | None:
            data = next(batches, None)
            if data is None or time.perf_counter() > deadline:
                return None
            return producer.produce(partition, data, next(numbers))

        def received(reply: memoryview) -> None:
            reply_of.base_offset(reply)
            tally.records += self.records

        async with measured(target, tally):
            await drain([Pump(producer.connection, following, received)])
        whole.records += tally.records
        whole.seconds += tally.seconds
        whole.broker_cpu += tally.broker_cpu
