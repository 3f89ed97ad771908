"""Tables of topics: the newest value of each key, read from Redis hashes."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from korvet.base.errors import ErrorCode
from korvet.library.batches import partition_of
from korvet.library.session import Session, check, check_partition
from korvet.library.values import KorvetError
from korvet.log.tables import fill
from korvet.topics.table import Topic

PAGE = 100
"""Fields that one HSCAN asks for."""


@dataclass(eq=False, repr=False)
class AsyncTable:
    """The newest value of each key of a topic with table.enable."""

    session: Session
    name: str

    async def get(self, key: bytes, partition: int | None = None) -> bytes | None:
        """Return the newest value of a key; None if it has none.

        Without `partition` that of Kafka's Java clients is looked up first, then the others: other
        clients may have chosen another one.
        """
        topic = await self._topic()
        if partition is None:
            own = partition_of(key, topic.partitions)
            numbers = [own, *(n for n in range(topic.partitions) if n != own)]
        else:
            check_partition(topic, partition)
            numbers = [partition]
        for number in numbers:
            await self.fill(topic, number)
            value: bytes | None = await self.session.store.command(
                "HGET", topic.partition(number).table, key
            )
            if value is not None:
                return value
        return None

    async def get_with_offset(self, key: bytes, partition: int) -> tuple[bytes | None, int]:
        """Return the newest value of a key in a partition, and its offset for `expected_offset`.

        They are (None, -1) if it has none, and the offset is -1 without table.offsets.enable. If
        the key changes meanwhile, the offset is that of the earlier value.
        """
        topic = await self._topic()
        check_partition(topic, partition)
        await self.fill(topic, partition)
        log, store = topic.partition(partition), self.session.store
        offset = -1
        if topic.policy.table_offsets_enable:
            offset = int(float(await store.command("ZSCORE", log.table_newer, key) or -1))
        value: bytes | None = await store.command("HGET", log.table, key)
        return value, offset

    async def items(self) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """Yield every key and its value, in no order.

        A key that is appended meanwhile may be left out, or yielded twice.
        """
        async for _, key, value in self.rows():
            yield key, value

    async def rows(
        self, partitions: Sequence[int] | None = None
    ) -> AsyncGenerator[tuple[int, bytes, bytes], None]:
        """Yield the same with the partition, of these partitions or all."""
        topic = await self._topic()
        for number in range(topic.partitions) if partitions is None else partitions:
            check_partition(topic, number)
            await self.fill(topic, number)
            cursor = b"0"
            while True:
                cursor, flat = await self.session.store.command(
                    "HSCAN", topic.partition(number).table, cursor, "COUNT", PAGE
                )
                for key, value in zip(flat[::2], flat[1::2], strict=True):
                    yield number, key, value
                if cursor == b"0":
                    break

    async def count(self) -> int:
        """Return the number of keys."""
        topic = await self._topic()
        total = 0
        for number in range(topic.partitions):
            await self.fill(topic, number)
            total += await self.session.store.command("HLEN", topic.partition(number).table)
        return total

    async def _topic(self) -> Topic:
        topic = await self.session.find_topic(self.name)
        if not topic.policy.table_enable:
            self.session.topic_table.invalidate()
            topic = await self.session.find_topic(self.name)
        if not topic.policy.table_enable:
            raise KorvetError(
                ErrorCode.INVALID_CONFIG,
                f"Topic {self.name!r} has no table: set its config table.enable=true.",
            )
        return topic

    async def fill(self, topic: Topic, number: int) -> None:
        """Add what no append has added: see korvet.log.tables."""
        reply = await fill(self.session.store, topic.partition(number))
        if reply.error:
            self.session.topic_table.invalidate()
        check(reply.error, f"Partition {number} of {self.name!r} has no table")


class TableCalls(Session):
    """Open tables."""

    async def table(self, name: str) -> AsyncTable:
        """Return the table of a topic: the newest value of each key.

        Raises KorvetError if the topic has no table.
        """
        table = AsyncTable(self, name)
        await table._topic()
        return table
