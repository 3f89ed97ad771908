"""Check that a request that repeats names has no response a thousand times its size."""

from korvet.base.errors import ErrorCode as E
from korvet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from korvet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.describe_producers import DescribeProducersRequest
from korvet.wire.messages.describe_transactions import DescribeTransactionsRequest
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
