"""Letting a produce request's partitions take part in its transaction (KIP-890, Produce 12 on).

A producer's epoch is that of one transaction then, so what has joined under an epoch has joined for
good: this broker remembers it, and only the first batch of a partition costs a question. But a
Redis that fails over may have lost it, and nobody would end the transaction in a partition that is
not in it: nothing is remembered beyond the connections it came by.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from korvet.errors import ErrorCode
from korvet.topics.table import Topic
from korvet.transactions.coordinator import member_of
from korvet.wire import records
from korvet.wire.messages.produce import ProduceRequest
from korvet.wire.records import Buffer

if TYPE_CHECKING:
    from korvet.context import Context

IMPLICIT_SINCE = 12
ABORTABLE_SINCE = 11
REMEMBERED = 10_000

Producer = tuple[str, int, int]
"""Transactional id, producer id, epoch."""


class EnlistedPartitions:
    """Which partitions joined which transactions; forgetting costs a question, never truth."""

    def __init__(self) -> None:
        self._members: dict[Producer, set[str]] = {}
        self._numbers: dict[Producer, int] = {}
        self._turns = 0

    def outlived(self, turns: int) -> None:
        """Nothing is known from before another server may have taken over: see `AsyncStore`."""
        if turns != self._turns:
            self._turns = turns
            self._clear()

    def _clear(self) -> None:
        self._members.clear()
        self._numbers.clear()

    def number(self, producer: Producer) -> int:
        """The number of the producer's transaction, 0 for none."""
        return self._numbers.get(producer, 0)

    def missing(self, producer: Producer, members: set[str]) -> set[str]:
        """Those that did not join yet, as far as is known here."""
        return members - self._members.get(producer, set())

    def remember(self, producer: Producer, number: int, members: set[str]) -> None:
        """They are in it."""
        if len(self._members) >= REMEMBERED:
            self._clear()
        if self._numbers.get(producer) != number:
            self._members[producer] = set()
        self._numbers[producer] = number
        self._members[producer] |= members

    def forget(self, producer: Producer) -> None:
        """Its transaction is over."""
        self._members.pop(producer, None)
        self._numbers.pop(producer, None)


def joined(context: "Context") -> EnlistedPartitions:
    """What the node remembers."""
    found = context.services.enlisted
    found.outlived(context.store.connection_epoch)
    return found


def unjoined(
    request: ProduceRequest, topics: list[Topic | None], context: "Context"
) -> dict[Producer, set[str]]:
    """The partitions with transactional batches that have still to join, by producer."""
    if request.transactional_id is None or context.version < IMPLICIT_SINCE:
        return {}
    wanted: dict[Producer, set[str]] = {}
    for producer, member in _members(request, topics, request.transactional_id):
        wanted.setdefault(producer, set()).add(member)
    known = joined(context)
    left = {producer: known.missing(producer, members) for producer, members in wanted.items()}
    return {producer: members for producer, members in left.items() if members}


def _members(
    request: ProduceRequest, topics: list[Topic | None], transactional_id: str
) -> Iterator[tuple[Producer, str]]:
    for data, topic in zip(request.topic_data, topics, strict=True):
        for row in data.partition_data:
            producer = producer_of(transactional_id, row.records)
            if producer and topic is not None and 0 <= row.index < topic.partitions:
                yield producer, member_of(topic.name, row.index)


def producer_of(transactional_id: str, data: Buffer | None) -> Producer | None:
    """Who sent a transactional batch; None for any other bytes."""
    if data is None or len(data) < records.HEADER_SIZE or data[records.MAGIC_AT] != 2:
        return None
    header = records.read_header(data)
    if not header.attributes & records.TRANSACTIONAL:
        return None
    return transactional_id, header.producer_id, header.producer_epoch


async def join(wanted: dict[Producer, set[str]], context: "Context") -> dict[Producer, ErrorCode]:
    """The partitions are in their transactions, but for those of the producers in the answer."""
    refused: dict[Producer, ErrorCode] = {}
    for producer, members in wanted.items():
        reply = await context.transactions.add(*producer, sorted(members))
        if reply.error == ErrorCode.PRODUCER_FENCED:
            refused[producer] = ErrorCode.INVALID_PRODUCER_EPOCH
        elif reply.error:
            refused[producer] = ErrorCode(reply.error)
        else:
            joined(context).remember(producer, reply.transaction, members)
    return refused


def transaction_of(
    transactional_id: str | None, data: Buffer | None, context: "Context"
) -> int | None:
    """What log.append is told of the transaction of a batch in this request."""
    if transactional_id is None:
        return None
    if context.version < IMPLICIT_SINCE:
        return 0
    producer = producer_of(transactional_id, data)
    return 0 if producer is None else joined(context).number(producer)


async def why_outside(
    producer: Producer, topic: str, partition: int, context: "Context"
) -> ErrorCode:
    """What is wrong with transactional records that a partition takes for those of a stranger."""
    reply = await context.transactions.verify(*producer, member_of(topic, partition))
    if reply.error == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if reply.error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if context.version >= ABORTABLE_SINCE:
        return ErrorCode.TRANSACTION_ABORTABLE
    return ErrorCode.INVALID_TXN_STATE
