"""Produce by idempotent producers: repeated, early, late and old batches."""

import zlib
from typing import Any

from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.conformance.asking import PRODUCED, Ask, case
from tests.support.raw_client import batch

SINCE = 3
LAST = 2**31 - 1


class Sender:
    """A producer that sends batches to one partition and keeps the results."""

    def __init__(self, ask: Ask, number: int = 0) -> None:
        self._ask = ask
        self._id = 1_000_000 + zlib.crc32(f"{ask.group}{number}".encode())
        self._places: dict[int, int] = {}
        self.results: list[tuple[int, str]] = []

    async def send(self, sequence: int, count: int = 1, epoch: int = 0) -> None:
        """Send a batch. Its result is the error and the batch that has the returned offset."""
        data = batch([b"v"] * count, producer=(self._id, epoch, sequence))
        rows = [PartitionProduceData(index=0, records=data)]
        topic = TopicProduceData(
            name=PRODUCED, topic_id=await self._ask.topic_id(PRODUCED), partition_data=rows
        )
        answer = await self._ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]))
        row = answer.responses[0].partition_responses[0]
        place = "none"
        if row.base_offset >= 0:
            number = self._places.setdefault(row.base_offset, len(self.results))
            place = "new" if number == len(self.results) else f"as batch {number}"
        self.results.append((row.error_code, place))


@case("Produce", since=SINCE)
async def a_batch_sent_again(ask: Ask) -> Any:
    sender = Sender(ask)
    for sequence in (0, 0, 1, 0, 1, 2):
        await sender.send(sequence)
    return sender.results


@case("Produce", since=SINCE)
async def a_batch_sent_again_after_five_others(ask: Ask) -> Any:
    sender = Sender(ask)
    for sequence in (*range(7), 0, 1, 2, 6, 7):
        await sender.send(sequence)
    return sender.results


@case("Produce", since=SINCE)
async def a_gap_between_batches(ask: Ask) -> Any:
    sender = Sender(ask)
    for sequence in (0, 2, 1, 5, 2):
        await sender.send(sequence)
    return sender.results


@case("Produce", since=SINCE)
async def an_unknown_producer_begins_at_any_sequence(ask: Ask) -> Any:
    sender = Sender(ask)
    for sequence in (41, 42, 41, 40, 0):
        await sender.send(sequence)
    return sender.results


@case("Produce", since=SINCE)
async def batches_that_overlap(ask: Ask) -> Any:
    sender = Sender(ask)
    for sequence, count in ((0, 3), (0, 2), (1, 2), (2, 2), (0, 4), (0, 3), (3, 1)):
        await sender.send(sequence, count)
    return sender.results


@case("Produce", since=SINCE)
async def sequences_that_wrap_around(ask: Ask) -> Any:
    sender = Sender(ask)
    for sequence, count in ((LAST - 1, 1), (LAST, 2), (LAST, 2), (1, 1), (0, 1), (2, 1)):
        await sender.send(sequence, count)
    return sender.results


@case("Produce", since=SINCE)
async def epochs_that_grow_and_shrink(ask: Ask) -> Any:
    sender = Sender(ask)
    for sequence, epoch in ((0, 3), (1, 2), (1, 3), (5, 4), (0, 4), (2, 3), (1, 4), (1, 6), (0, 6)):
        await sender.send(sequence, epoch=epoch)
    return sender.results


@case("Produce", since=SINCE)
async def numbers_below_nothing(ask: Ask) -> Any:
    found = []
    for number, (sequence, epoch) in enumerate(((-1, 0), (0, -1), (-5, 3), (-1, -1))):
        sender = Sender(ask, number)
        await sender.send(sequence, epoch=epoch)
        await sender.send(0, epoch=0)
        found += sender.results
    return found
