"""Check that requests are counted by the first error in their responses, at any depth."""

from typing import Any

import pytest

from korvet.broker.error_responses import MOST_ROWS, first_error
from korvet.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from korvet.wire.messages.api_versions import ApiVersionsResponse
from korvet.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from korvet.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


def stored(*topics: list[int]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t",
                partition_responses=[
                    PartitionProduceResponse(index=0, error_code=code, base_offset=-1)
                    for code in codes
                ],
            )
            for codes in topics
        ]
    )


def described(topic: int, partition: int) -> MetadataResponse:
    row = MetadataResponsePartition(
        error_code=partition, partition_index=0, leader_id=0, replica_nodes=[], isr_nodes=[]
    )
    reported = MetadataResponseTopic(error_code=topic, name="t", partitions=[row])
    return MetadataResponse(brokers=[], controller_id=0, topics=[reported])


def joined(code: int) -> AddPartitionsToTxnResponse:
    row = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
    reported = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[row])
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[reported])


@pytest.mark.parametrize(
    ("response", "version", "code"),
    [
        (stored(), 9, 0),
        (stored([0, 0], [0]), 9, 0),
        (stored([0, 0], [56, 3]), 9, 56),
        (described(0, 0), 9, 0),
        (described(3, 5), 9, 3),
        (described(0, 5), 9, 5),
        (joined(48), 0, 48),
        (ApiVersionsResponse(error_code=35, api_keys=[]), 0, 35),
    ],
)
def test_the_first_error_of_an_answer_is_found(response: Any, version: int, code: int) -> None:
    assert first_error(response, version) == code


def test_a_limited_number_of_rows_is_searched() -> None:
    assert first_error(stored([0] * (MOST_ROWS - 1) + [56]), 9) == 56
    assert first_error(stored([0] * MOST_ROWS + [56]), 9) == 0
