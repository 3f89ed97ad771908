"""Transactions: what they cost beside plain idempotence, and how long the end of one takes.

Requests are of the last versions before flexible headers, as in `frames`: the protocol of
librdkafka, in which each partition joins a transaction by a request of its own.
"""

import itertools
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks import frames
from benchmarks.connection import Connection
from benchmarks.latency import quantile
from benchmarks.load import Pump, Tally, Target, connections, drain, measured, topic
from benchmarks.payloads import batch, stamp

INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 22, 24, 26
CONCURRENT_TRANSACTIONS = 51
SLICES = 4
"""The two kinds of producer take turns, so that a machine's moods meet both."""


@dataclass(slots=True)
class Producer:
    """An identity, transactional or merely idempotent, and the sequence of its partitions."""

    connection: Connection
    topic: str
    name: str | None
    id: int = -1
    epoch: int = -1

    async def begin(self) -> None:
        """The broker has given the id and the epoch."""
        name = b"\xff\xff" if self.name is None else frames.text(self.name)
        body = name + struct.pack(">i", 60_000)
        reply = await self._settled(frames.frame(INIT_PRODUCER_ID, 1, body), 8)
        self.id, self.epoch = struct.unpack_from(">qh", reply, 10)

    async def join(self, partitions: Sequence[int]) -> None:
        """The partitions are in the transaction."""
        body = self._who() + struct.pack(">i", 1) + frames.text(self.topic)
        body += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
        frame = frames.frame(ADD_PARTITIONS, 2, body)
        await self._settled(frame, 8 + 4 + 2 + len(self.topic) + 4 + 4)

    async def end(self) -> None:
        """The transaction is committed."""
        await self._settled(frames.frame(END_TXN, 2, self._who() + b"\1"), 8)

    def produce(self, partition: int, data: bytearray, sequence: int) -> bytes:
        """The request that sends one batch, numbered."""
        stamp(data, self.id, self.epoch, sequence, transactional=self.name is not None)
        return frames.produce(self.topic, {partition: bytes(data)}, transactional_id=self.name)

    def _who(self) -> bytes:
        return frames.text(self.name or "") + struct.pack(">qh", self.id, self.epoch)

    async def _settled(self, frame: bytes, place: int) -> bytes:
        """The answer, once no transaction before is in the way."""
        while True:
            reply = await self.connection.ask(frame)
            (error,) = struct.unpack_from(">h", reply, place)
            if error == frames.NO_ERROR:
                return reply
            if error != CONCURRENT_TRANSACTIONS:
                raise frames.Refused(f"transaction: error code {error}")


@dataclass(frozen=True, slots=True)
class Transactional:
    """`requests` of `records` times `size` bytes a transaction, to one partition."""

    records: int = 100
    size: int = 1000
    requests: int = 10

    async def run(self, target: Target) -> dict[str, float]:
        """Records a second with transactions and without, and the one over the other."""
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
        """As many requests, in a transaction if the producer has them."""
        if producer.name is not None:
            await producer.join([partition])
        left = itertools.islice(batches, self.requests)
        place = frames.ProduceReply(producer.topic)

        def following() -> bytes | None:
            row = next(left, None)
            return None if row is None else producer.produce(partition, *row)

        await drain([Pump(producer.connection, following, self._counted(place, tally))])
        if producer.name is not None:
            await producer.end()

    def _counted(self, place: frames.ProduceReply, tally: Tally) -> Callable[[memoryview], None]:
        def received(reply: memoryview) -> None:
            place.base_offset(reply)
            tally.records += self.records
            tally.payload += self.records * self.size

        return received

    def _numbered(self) -> Iterator[tuple[bytearray, int]]:
        """Batches without end, and the first sequence number of each."""
        made = [bytearray(batch(self.records, self.size, seed=seed)) for seed in range(4)]
        for number, data in enumerate(itertools.cycle(made)):
            yield data, number * self.records


@dataclass(frozen=True, slots=True)
class Ends:
    """Transactions of one record in each of `width` partitions; only their ends are timed."""

    width: int = 10
    most: int = 500

    async def run(self, target: Target) -> dict[str, float]:
        """Milliseconds from EndTxn to its answer."""
        deadline = time.perf_counter() + target.seconds
        took: list[float] = []
        async with (
            topic(target, "bench-ends", self.width) as name,
            connections(target, 1) as (connection,),
        ):
            producer = Producer(connection, name, f"{name}-tx")
            await producer.begin()
            data = bytearray(batch(1, 100))
            while time.perf_counter() < deadline and len(took) < self.most:
                await producer.join(range(self.width))
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
