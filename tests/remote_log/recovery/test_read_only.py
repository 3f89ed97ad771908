"""Check the refusals of a read-only broker, for every API."""

import pytest

from korvet import apis
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.broker.read_only import REFUSED, SENTENCE, ReadOnly
from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from korvet.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def test_every_refused_api_is_one_that_the_broker_serves() -> None:
    assert {row.name for row in apis.TABLE} >= REFUSED


async def test_each_item_has_the_error_and_the_reason() -> None:
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    pending = ReadOnly().response(apis.BY_KEY[19], CreateTopicsRequest(topics=[topic]))
    assert pending is not None
    response: object = await pending
    row = response.topics[0]  # type: ignore[attr-defined]
    assert (row.name, row.error_code) == ("t", ErrorCode.POLICY_VIOLATION)
    assert row.error_message == SENTENCE


async def test_a_request_with_acks_0_closes_its_connection() -> None:
    data = PartitionProduceData(index=0, records=b"")
    request = ProduceRequest(
        acks=0, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    pending = ReadOnly().response(apis.BY_KEY[0], request)
    assert pending is not None
    with pytest.raises(CloseWithoutResponse):
        await pending


def test_reads_and_groups_are_served() -> None:
    for row in apis.TABLE:
        if row.name in {"Fetch", "JoinGroup", "OffsetCommit", "InitProducerId"}:
            assert ReadOnly().response(row, None) is None
