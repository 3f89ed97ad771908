"""Enlist the partitions of a Produce request in its transaction (KIP-890, Produce 12 and newer).

A producer's epoch belongs to one transaction then, so a partition enlisted under an epoch stays
enlisted. The broker caches that: only the first batch for a partition costs a round trip. A Redis
that fails over may have lost the transaction's list, and a partition missing from it would never
get its marker. So nothing is cached beyond the connections it was learned over.
"""

from collections.abc import Callable, Iterator, Sequence

from korvet.base.bounded import ByteBounded
from korvet.base.errors import ErrorCode
from korvet.topics.table import Topic
from korvet.transactions.coordinator import TransactionCoordinator
from korvet.transactions.members import partition_member
from korvet.wire import records
from korvet.wire.messages.produce import ProduceRequest
from korvet.wire.records import Buffer

IMPLICIT_SINCE = 12
"""The Produce version from which on a partition is enlisted by being produced to."""
ABORTABLE_SINCE = 11
"""The Produce version from which on TRANSACTION_ABORTABLE is known."""
MEMBER_BYTES = 150
"""Approximate memory of a partition's name in the cache."""

Producer = tuple[str, int, int]
"""Transactional id, producer id, epoch."""


class EnlistedPartitions:
    """The partitions known to be in their producer's transaction.

    A missing entry costs a round trip, never correctness. The entries are valid for one value of
    the store's `connection_epoch`.
    """

    def __init__(
        self, coordinator: TransactionCoordinator, connection_epoch: Callable[[], int]
    ) -> None:
        self._coordinator = coordinator
        self._connection_epoch = connection_epoch
        self._epoch = 0
        self._transactions = ByteBounded[Producer, tuple[int, set[str]]](
            "enlisted partitions", 32 << 20
        )
        """The number of each producer's transaction, and its members."""

    def missing(
        self, request: ProduceRequest, topics: Sequence[Topic | None], version: int
    ) -> dict[Producer, set[str]]:
        """Return the partitions of transactional batches to enlist, by producer."""
        if request.transactional_id is None or version < IMPLICIT_SINCE:
            return {}
        self._drop_outdated()
        found: dict[Producer, set[str]] = {}
        for producer, member in _members(request, topics, request.transactional_id):
            row = self._transactions.get(producer)
            if row is None or member not in row[1]:
                found.setdefault(producer, set()).add(member)
        return found

    async def enlist(self, missing: dict[Producer, set[str]]) -> dict[Producer, ErrorCode]:
        """Add the partitions to their transactions; return the error of each rejected producer."""
        rejected: dict[Producer, ErrorCode] = {}
        for producer, members in missing.items():
            reply = await self._coordinator.add_members(*producer, sorted(members))
            if reply.error == ErrorCode.PRODUCER_FENCED:
                rejected[producer] = ErrorCode.INVALID_PRODUCER_EPOCH
            elif reply.error:
                rejected[producer] = ErrorCode(reply.error)
            else:
                self.remember(producer, reply.transaction, members)
        return rejected

    def remember(self, producer: Producer, number: int, members: set[str]) -> None:
        """Cache that these partitions are in the producer's transaction of that number."""
        self._drop_outdated()
        row = self._transactions.get(producer)
        known = set[str]() if row is None or row[0] != number else row[1]
        known |= members
        self._transactions.put(producer, (number, known), len(known) * MEMBER_BYTES)

    def forget(self, producer: Producer) -> None:
        """Drop the producer's entry: its transaction has ended."""
        self._transactions.pop(producer)

    def number_for(self, producer: Producer | None, version: int) -> int:
        """Return log.append's `transaction` for a batch of a request with a transactional id.

        0: the transaction that AddPartitionsToTxn has registered in the partition.
        """
        if producer is None or version < IMPLICIT_SINCE:
            return 0
        self._drop_outdated()
        found = self._transactions.get(producer)
        return 0 if found is None else found[0]

    async def why_rejected(
        self, producer: Producer, topic: str, partition: int, version: int
    ) -> ErrorCode:
        """Return the error for records that log.append rejected: not in an open transaction.

        Another broker may have ended the cached transaction, so the entry is dropped.
        """
        self.forget(producer)
        reply = await self._coordinator.verify_member(*producer, partition_member(topic, partition))
        if reply.error == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if reply.error == ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if version >= ABORTABLE_SINCE:
            return ErrorCode.TRANSACTION_ABORTABLE
        return ErrorCode.INVALID_TXN_STATE

    def _drop_outdated(self) -> None:
        """Clear the cache after a reconnect: another Redis server may have taken over."""
        epoch = self._connection_epoch()
        if epoch != self._epoch:
            self._epoch = epoch
            self._transactions.clear()


def _members(
    request: ProduceRequest, topics: Sequence[Topic | None], transactional_id: str
) -> Iterator[tuple[Producer, str]]:
    for data, topic in zip(request.topic_data, topics, strict=True):
        for row in data.partition_data:
            producer = producer_of(transactional_id, row.records)
            if producer and topic is not None and 0 <= row.index < topic.partitions:
                yield producer, partition_member(topic.name, row.index)


def producer_of(transactional_id: str, data: Buffer | None) -> Producer | None:
    """Return the producer of a transactional batch, None for any other bytes."""
    if data is None or len(data) < records.HEADER_SIZE or data[records.MAGIC_AT] != records.MAGIC:
        return None
    header = records.read_header(data)
    if not header.attributes & records.TRANSACTIONAL:
        return None
    return transactional_id, header.producer_id, header.producer_epoch
