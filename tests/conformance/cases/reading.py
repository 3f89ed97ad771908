"""ListOffsets and Fetch."""

from typing import Any
from uuid import UUID

from korvet.wire import batch_builder, compression, records
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.conformance.asking import ABSENT, PRODUCED, TOPIC, Ask, case

LATEST, EARLIEST = -1, -2
UNKNOWN_ID = UUID(int=7)
PRODUCE = 9


def listing(*asked: tuple[int, int], topic: str = TOPIC, epoch: int = -1) -> ListOffsetsRequest:
    """Return a ListOffsets request for (partition, timestamp) pairs."""
    rows = [
        ListOffsetsPartition(partition_index=number, timestamp=moment, current_leader_epoch=epoch)
        for number, moment in asked
    ]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=rows)])


@case("ListOffsets", since=1)
async def a_partition_listed_twice(ask: Ask) -> Any:
    return [
        await ask(listing((0, LATEST), (0, LATEST), (1, LATEST))),
        await ask(listing((0, LATEST), (1, LATEST), (0, EARLIEST))),
        await ask(listing((9, LATEST), (9, EARLIEST))),
    ]


@case("ListOffsets", since=1)
async def a_topic_listed_twice(ask: Ask) -> Any:
    once = listing((0, LATEST), (1, LATEST)).topics[0]
    again = listing((1, LATEST)).topics[0]
    return await ask(ListOffsetsRequest(replica_id=-1, topics=[once, again]))


@case("ListOffsets", since=1)
async def moments_of_an_empty_partition(ask: Ask) -> Any:
    return [await ask(listing((0, moment))) for moment in (0, 1_700_000_000_000, 2**62, *SPECIAL)]


SPECIAL = (LATEST, EARLIEST, -3, -4, -5, -7, -100)


@case("ListOffsets", since=1)
async def special_timestamps_of_unknown_partitions(ask: Ask) -> Any:
    return [
        await ask(listing((number, moment), topic=topic, epoch=epoch))
        for topic, number in ((ABSENT, 0), (TOPIC, 9), (TOPIC, 0))
        for moment in (-3, -5, -7)
        for epoch in (-1, 99)
    ]


@case("ListOffsets", since=1)
async def offsets_of_unknown_topics_and_partitions(ask: Ask) -> Any:
    return [
        await ask(listing((0, LATEST), topic=ABSENT)),
        await ask(listing((2, LATEST), (-1, LATEST), (0, LATEST))),
        await ask(ListOffsetsRequest(replica_id=-1, topics=[])),
    ]


@case("ListOffsets", since=4)
async def offsets_of_other_leader_epochs(ask: Ask) -> Any:
    return [await ask(listing((0, LATEST), epoch=epoch)) for epoch in (0, 1, 2**31 - 1)]


async def fetching(
    ask: Ask, *asked: tuple[int, int], topic: str = TOPIC, epoch: int = -1, last: int = -1
) -> FetchRequest:
    """Build a Fetch request for (partition, offset) pairs, without session and wait."""
    rows = [
        FetchPartition(
            partition=number,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=last,
            partition_max_bytes=1 << 20,
        )
        for number, offset in asked
    ]
    number = UNKNOWN_ID if topic == ABSENT else await ask.topic_id(topic)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=topic, topic_id=number, partitions=rows)],
    )


@case("Fetch", since=4)
async def records_at_offsets_out_of_range(ask: Ask) -> Any:
    return await ask(await fetching(ask, (0, 5), (1, 0))), await ask(await fetching(ask, (0, -1)))


@case("Fetch", since=4)
async def records_of_unknown_topics_and_partitions(ask: Ask) -> Any:
    return [
        await ask(await fetching(ask, (0, 0), topic=ABSENT)),
        await ask(await fetching(ask, (2, 0), (0, 0))),
    ]


@case("Fetch", since=9)
async def records_of_other_leader_epochs(ask: Ask) -> Any:
    return [await ask(await fetching(ask, (0, 0), epoch=epoch)) for epoch in (0, 1, 2**31 - 1)]


@case("Fetch", since=12)
async def records_of_clients_that_name_the_epoch_of_their_last_records(ask: Ask) -> Any:
    places = (0, 0), (1, 5)
    return [await ask(await fetching(ask, *places, last=last)) for last in (0, 1, -2)]


@case("Fetch", since=4)
async def records_compressed_with_zstd(ask: Ask) -> Any:
    batch = bytes(
        batch_builder.build([(0, 1_700_000_000_000, b"k", b"v" * 99, [])], codec=compression.ZSTD)
    )
    row = PartitionProduceData(index=0, records=batch)
    data = TopicProduceData(name=PRODUCED, partition_data=[row])
    stored = await ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), PRODUCE)
    at = stored.responses[0].partition_responses[0].base_offset
    answer = await ask(await fetching(ask, (0, at), topic=PRODUCED))
    found = answer.responses[0].partitions[0]
    read = records.records_of(bytes(found.records)) if found.records else []
    return found.error_code, [record[2:4] for record in read]
