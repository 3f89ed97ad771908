"""Measure the cost of transactions over idempotence, and the latency of EndTxn.

Requests have the last versions before flexible headers, as in `frames`. As in
librdkafka's protocol, a partition is added to a transaction by a separate request.
"""

import itertools
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from korvet.testing.bench import frames
from korvet.testing.bench.connection import Connection
from korvet.testing.bench.latency import quantile
from korvet.testing.bench.load import Pump, Tally, Target, connections, drain, measured, topic
from korvet.testing.bench.payloads import batch, stamp

INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 22, 24, 26
CONCURRENT_TRANSACTIONS = 51
SLICES = 4
"""Turns of each producer: a change of the machine's speed then affects both."""


@dataclass(slots=True)
class Producer:
    """An idempotent or transactional producer."""

    connection: Connection
    topic: str
    name: str | None
    id: int = -1
    epoch: int = -1

    async def begin(self) -> None:
        """Get the producer id and epoch (InitProducerId)."""
        name = b"\xff\xff" if self.name is None else frames.text(self.name)
        body = name + struct.pack(">i", 60_000)
        reply = await self._ask_until_complete(frames.frame(INIT_PRODUCER_ID, 1, body), 8)
        self.id, self.epoch = struct.unpack_from(">qh", reply, 10)

    async def add_partitions(self, partitions: Sequence[int]) -> None:
        """Add the partitions to the transaction (AddPartitionsToTxn)."""
        body = self._identity() + struct.pack(">i", 1) + frames.text(self.topic)
        body += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
        frame = frames.frame(ADD_PARTITIONS, 2, body)
        await self._ask_until_complete(frame, 8 + 4 + 2 + len(self.topic) + 4 + 4)

    async def end(self) -> None:
        """Commit the transaction (EndTxn)."""
        await self._ask_until_complete(frames.frame(END_TXN, 2, self._identity() + b"\1"), 8)

    def produce(self, partition: int, data: bytearray, sequence: int) -> bytes:
        """Encode the Produce request of one batch with its first sequence number."""
        stamp(data, self.id, self.epoch, sequence, transactional=self.name is not None)
        return frames.produce(self.topic, {partition: bytes(data)}, transactional_id=self.name)

    def _identity(self) -> bytes:
        return frames.text(self.name or "") + struct.pack(">qh", self.id, self.epoch)

    async def _ask_until_complete(self, frame: bytes, error_at: int) -> bytes:
        """Send a request until the previous transaction is complete, and return the reply."""
        while True:
            reply = await self.connection.ask(frame)
            (error,) = struct.unpack_from(">h", reply, error_at)
            if error == frames.NO_ERROR:
                return reply
            if error != CONCURRENT_TRANSACTIONS:
                raise frames.Refused(f"transaction request of {self.name}: error code {error}")


@dataclass(frozen=True, slots=True)
class Transactional:
    """Transactions of `requests` requests with `records` of `size` bytes, in one partition."""

    records: int = 100
    size: int = 1000
    requests: int = 10

    async def run(self, target: Target) -> dict[str, float]:
        """Return the rates with and without transactions, and their ratio."""
        tallies = {True: Tally(), False: Tally()}
        async with (
            topic(target, "bench-transactional", 2) as name,
            connections(target, 2) as opened,
        ):
            pair = [
                (Producer(opened[0], name, None), 0, self._numbered()),
                (Producer(opened[1], name, f"{name}-tx"), 1, self._numbered()),
            ]
            for row in pair:
                await row[0].begin()
                await self._transaction(*row, Tally())
            for _ in range(SLICES):
                for row in pair:
                    await self._slice(target, *row, tallies)
        with_, without = (
            tally.records / tally.seconds for tally in (tallies[True], tallies[False])
        )
        return {
            "records_per_s": round(with_),
            "transactions_per_s": round(with_ / self.records / self.requests),
            "idempotent_records_per_s": round(without),
            "of_idempotent": round(with_ / without, 3),
        }

    async def _slice(
        self,
        target: Target,
        producer: Producer,
        partition: int,
        batches: Iterator[tuple[bytearray, int]],
        tallies: dict[bool, Tally],
    ) -> None:
        tally = Tally()
        budget = target.megabytes * 1_000_000 // 2 // SLICES
        deadline = time.perf_counter() + target.seconds / SLICES
        async with measured(target, tally):
            while tally.payload < budget and time.perf_counter() < deadline:
                await self._transaction(producer, partition, batches, tally)
        whole = tallies[producer.name is not None]
        whole.records += tally.records
        whole.seconds += tally.seconds

    async def _transaction(
        self,
        producer: Producer,
        partition: int,
        batches: Iterator[tuple[bytearray, int]],
        tally: Tally,
    ) -> None:
        """Send `requests` requests, in a transaction if the producer is transactional."""
        if producer.name is not None:
            await producer.add_partitions([partition])
        left = itertools.islice(batches, self.requests)
        reply_of = frames.ProduceReply(producer.topic)

        def following() -> bytes | None:
            row = next(left, None)
            return None if row is None else producer.produce(partition, *row)

        await drain([Pump(producer.connection, following, self._counted(reply_of, tally))])
        if producer.name is not None:
            await producer.end()

    def _counted(self, reply_of: frames.ProduceReply, tally: Tally) -> Callable[[memoryview], None]:
        def received(reply: memoryview) -> None:
            reply_of.base_offset(reply)
            tally.records += self.records
            tally.payload += self.records * self.size

        return received

    def _numbered(self) -> Iterator[tuple[bytearray, int]]:
        """Yield batches without end, with the first sequence number of each."""
        made = [bytearray(batch(self.records, self.size, seed=seed)) for seed in range(4)]
        for number, data in enumerate(itertools.cycle(made)):
            yield data, number * self.records


@dataclass(frozen=True, slots=True)
class Ends:
    """Transactions of one record in each of `width` partitions, of which EndTxn is timed."""

    width: int = 10
    max_transactions: int = 500

    async def run(self, target: Target) -> dict[str, float]:
        """Return the milliseconds from EndTxn to its response."""
        deadline = time.perf_counter() + target.seconds
        took: list[float] = []
        async with (
            topic(target, "bench-ends", self.width) as name,
            connections(target, 1) as (connection,),
        ):
            producer = Producer(connection, name, f"{name}-tx")
            await producer.begin()
            data = bytearray(batch(1, 100))
            while time.perf_counter() < deadline and len(took) < self.max_transactions:
                await producer.add_partitions(range(self.width))
                for partition in range(self.width):
                    reply = await connection.ask(producer.produce(partition, data, len(took)))
                    frames.ProduceReply(name).base_offset(memoryview(reply))
                begin = time.perf_counter()
                await producer.end()
                took.append(time.perf_counter() - begin)
        return {
            "partitions": self.width,
            "transactions": len(took),
            "p50_ms": quantile(took, 0.5),
            "p99_ms": quantile(took, 0.99),
        }
