"""Check that a request that repeats names has no response a thousand times its size."""

from typing import Any
from unittest.mock import patch

from korvet.base.bounded import ITEMS_PER_YIELD
from korvet.base.errors import ErrorCode as E
from korvet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from korvet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.describe_producers import DescribeProducersRequest
from korvet.wire.messages.describe_transactions import DescribeTransactionsRequest
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from korvet.wire.structs import PartitionIndexes
from tests.support.connected_broker import Broker
from tests.support.exchanges import packed, produce, rows

TWELVE = 12
LAST_TWO = [E.INVALID_REQUEST] * 2


async def test_configs_of_a_resource_are_returned_ten_times_at_most(broker: Broker) -> None:
    await broker.create("t")

    async def codes(kind: int, *names: str) -> set[int]:
        rows = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for name in names
        ]
        answer = await broker.ask(DescribeConfigsRequest(resources=rows))
        assert [row.resource_name for row in answer.results] == list(names)
        return {row.error_code for row in answer.results}

    assert await codes(2, *["t"] * 10) == {E.NONE}
    assert await codes(2, *["t"] * 11) == {E.INVALID_REQUEST}
    assert await codes(4, *["0" * zeros + "7" for zeros in range(10)]) == {E.NONE}
    assert await codes(4, *["0" * zeros + "7" for zeros in range(11)]) == {E.INVALID_REQUEST}
    many = [str(number) for number in range(100)]
    assert await codes(4, *many, "") == {E.NONE, E.INVALID_REQUEST}
    assert await codes(32, *[f"g{number}" for number in range(120)]) == {E.NONE}


async def test_rows_that_topics_have_in_common_are_returned_for_each(broker: Broker) -> None:
    await broker.create("a", retention_ms="1")
    await broker.create("b", retention_ms="2")
    await broker.create("c")
    rows = [
        DescribeConfigsResource(
            resource_type=2, resource_name=name, configuration_keys=["retention.ms", "segment.ms"]
        )
        for name in "abc"
    ]
    answer = await broker.ask(DescribeConfigsRequest(resources=rows, include_synonyms=True))
    reported = [{row.name: row.value for row in result.configs} for result in answer.results]
    assert [row["retention.ms"] for row in reported] == ["1", "2", "604800000"]
    assert len({row["segment.ms"] for row in reported}) == 1


async def test_groups_are_described_ten_times_at_most(broker: Broker) -> None:
    answer = await broker.ask(DescribeGroupsRequest(groups=["g"] * TWELVE + ["h"]), 5)
    assert [row.error_code for row in answer.groups] == [E.NONE] * 10 + LAST_TWO + [E.NONE]
    request = ConsumerGroupDescribeRequest(
        group_ids=["g"] * TWELVE, include_authorized_operations=False
    )
    codes = [row.error_code for row in (await broker.ask(request)).groups]
    assert codes == [E.GROUP_ID_NOT_FOUND] * 10 + LAST_TWO


async def test_transactions_and_producers_are_described_ten_times_at_most(broker: Broker) -> None:
    answer = await broker.ask(DescribeTransactionsRequest(transactional_ids=["x"] * TWELVE))
    codes = [row.error_code for row in answer.transaction_states]
    assert codes == [E.TRANSACTIONAL_ID_NOT_FOUND] * 10 + LAST_TWO
    await broker.create("t")
    asked = PartitionIndexes(name="t", partition_indexes=[0] * TWELVE + [1])
    answer = await broker.ask(DescribeProducersRequest(topics=[asked]))
    codes = [row.error_code for row in answer.topics[0].partitions]
    assert codes == [E.NONE] * 10 + LAST_TWO + [E.NONE]


async def test_offsets_of_a_group_or_partition_are_returned_10_times_at_most(
    broker: Broker,
) -> None:
    await broker.create("t")
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata="long"
    )
    committed = OffsetCommitRequestTopic(name="t", partitions=[partition])
    await broker.ask(OffsetCommitRequest(group_id="g", topics=[committed]), 9)

    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = await broker.ask(OffsetFetchRequest(groups=[group] * TWELVE), 9)
    assert [row.error_code for row in answer.groups] == [E.NONE] * 10 + LAST_TWO
    assert [len(row.topics) for row in answer.groups] == [1] * 10 + [0] * 2

    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0] * TWELVE + [1])
    group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
    answer = await broker.ask(OffsetFetchRequest(groups=[group]), 9)
    rows = answer.groups[0].topics[0].partitions
    assert [row.error_code for row in rows] == [E.NONE] * 10 + LAST_TWO + [E.NONE]
    assert [row.committed_offset for row in rows] == [5] * 10 + [-1] * 3


async def test_offsets_of_many_partitions_are_read_in_parts(broker: Broker) -> None:
    await broker.create("t")
    numbers = range(2 * ITEMS_PER_YIELD + 1)
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=list(numbers))
    sent: list[int] = []
    store = broker.services.store
    command = store.command

    async def counted(name: str, *words: object) -> Any:
        sent.append(len(words))
        return await command(name, *words)

    with patch.object(store, "command", counted):
        answer = await broker.ask(OffsetFetchRequest(group_id="g", topics=[topic]), 7)
    assert [row.partition_index for row in answer.topics[0].partitions] == list(numbers)
    assert max(sent) == 1 + ITEMS_PER_YIELD and len(sent) >= 3


async def test_the_last_row_of_a_partition_counts_and_has_one_response(broker: Broker) -> None:
    await broker.create("t", 2, offset_mode="dense")
    await broker.create("u")
    await produce(broker, packed(rows(b"a", b"b", b"c"), 13))

    def fetched(name: str, *asked: tuple[int, int]) -> FetchTopic:
        parts = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1000)
            for number, offset in asked
        ]
        return FetchTopic(topic=name, partitions=parts)

    topics = [fetched("t", (0, 99), (1, 0), (0, 1)), fetched("u", (0, 0)), fetched("t", (1, 7))]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
    for version in (4, 12):
        answer = await broker.ask(request, version)
        assert [
            (each.topic, [(row.partition_index, row.error_code) for row in each.partitions])
            for each in answer.responses
        ] == [("t", [(0, E.NONE), (1, E.OFFSET_OUT_OF_RANGE)]), ("u", [(0, E.NONE)])]

    parts = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (3, 1)]
    asked = DeleteRecordsTopic(name="t", partitions=parts)
    answer = await broker.ask(DeleteRecordsRequest(topics=[asked] * 2, timeout_ms=9))
    assert [[row.low_watermark for row in each.partitions] for each in answer.topics] == [[1]]
