"""Consumer groups of aiokafka: members come and go while a producer writes."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name

PATIENCE = 30.0
PARTITIONS = 4
Place = tuple[int, int]


class Member:
    """A consumer that reads and commits in its own task."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.seen: list[Place] = []
        self.consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            session_timeout_ms=6000,
            fetch_max_wait_ms=100,
            **settings,
        )
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> "Member":
        """Join the group."""
        await self.consumer.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def leave(self) -> None:
        """Leave the group; a second call changes nothing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            await asyncio.wait_for(self.consumer.stop(), PATIENCE)

    async def __aenter__(self) -> "Member":
        return await self.join()

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    def owned(self) -> set[int]:
        """Return the assigned partitions."""
        return {place.partition for place in self.consumer.assignment()}

    async def _run(self) -> None:
        while True:
            found = await self.consumer.getmany(timeout_ms=50)
            for records in found.values():
                self.seen += [(record.partition, record.offset) for record in records]


@asynccontextmanager
async def writing(bootstrap: str, topic: str) -> AsyncIterator[set[Place]]:
    """Write until the block ends; yield the growing set of stored records."""
    sink = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await sink.start()
    stored: set[Place] = set()

    async def write() -> None:
        for number in itertools.takewhile(lambda _: not done.is_set(), itertools.count()):
            sent = await sink.send_and_wait(topic, b"%d" % number, partition=number % PARTITIONS)
            stored.add((sent.partition, sent.offset))
            await asyncio.sleep(0.002)

    done = asyncio.Event()
    task = asyncio.create_task(write())
    try:
        yield stored
    finally:
        # Not cancelled: a record may be stored even if its acknowledgement is not awaited.
        done.set()
        await asyncio.wait_for(task, PATIENCE)
        await asyncio.wait_for(sink.stop(), PATIENCE)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the client has no event for its assignment
            await asyncio.sleep(0.02)


async def settled(*members: Member) -> None:
    """Wait until each partition has one owner and the load is even."""

    def even() -> bool:
        owned = sorted(itertools.chain(*(member.owned() for member in members)))
        sizes = [len(member.owned()) for member in members]
        return owned == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1

    await eventually(even)


async def test_members_come_and_go_and_nothing_is_missed(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address, partitions=PARTITIONS)
    async with AsyncExitStack() as stack:

        async def join() -> Member:
            return await stack.enter_async_context(Member(address, group, topic))

        async with writing(address, topic) as stored:
            first = await join()
            await settled(first)
            second, third = await join(), await join()
            await settled(first, second, third)
            await first.leave()
            await settled(second, third)
        members = [first, second, third]
        await eventually(lambda: set().union(*(m.seen for m in members)) == stored)


async def test_commits_carry_metadata_and_survive(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    place = TopicPartition(topic, 0)
    async with asyncio.timeout(PATIENCE):
        async with Member(address, group, topic) as member:
            await eventually(lambda: member.owned() == {0})
            await member.consumer.commit({place: OffsetAndMetadata(5, "five")})
        reader = AIOKafkaConsumer(bootstrap_servers=address, group_id=group)
        await reader.start()
        reader.assign([place])
        assert await reader.committed(place) == 5
        await reader.stop()


async def test_a_static_member_keeps_its_partitions_over_a_restart(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address, partitions=PARTITIONS)

    def named(name: str) -> Member:
        return Member(address, group, topic, group_instance_id=name)

    async with named("two") as two:
        async with named("one") as one:
            await settled(one, two)
            before = one.owned()
        async with named("one") as again:
            await settled(again, two)
            assert again.owned() == before
