"""Check responses to requests that failed in Redis, and the first error of a response.

Each item of the request has an error. Requests are counted by the first one, at any depth.
"""

from random import Random
from typing import Any

import msgspec
import pytest

from korvet.apis import BY_KEY, TABLE, Api
from korvet.base.errors import ErrorCode
from korvet.broker.error_responses import MOST_ROWS, error_response, first_error
from korvet.store.errors import ScriptFailed, StoreUnavailable
from korvet.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from korvet.wire.messages.api_versions import ApiVersionsResponse
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
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
from korvet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from korvet.wire.schema import decode, encode
from korvet.wire.structs import NamedPartitions
from tests.wire.values import a_message

VERSIONS = [
    (api, version) for api in TABLE for version in range(api.versions[0], api.versions[1] + 1)
]
BROKEN = ScriptFailed("group.txn_commit", 1, "ERR no such field")


def codes_in(value: Any) -> list[int]:
    """Return every error code in a response."""
    if isinstance(value, list):
        return [code for item in value for code in codes_in(item)]
    if not isinstance(value, msgspec.Struct):
        return []
    found = []
    for name in value.__struct_fields__:
        inner = getattr(value, name)
        is_code = name in ("error_code", "partition_error_code")
        found += [int(inner)] if is_code else codes_in(inner)
    return found


def has_an_empty_list(value: Any) -> bool:
    """Return whether a request has an empty list, or requests all topics or partitions by null."""
    if isinstance(value, list):
        return not value or any(map(has_an_empty_list, value))
    if not isinstance(value, msgspec.Struct):
        return False
    return any(
        has_an_empty_list(getattr(value, name))
        or (getattr(value, name) is None and name in ("topics", "topic_partitions"))
        for name in value.__struct_fields__
    )


@pytest.mark.parametrize(
    ("api", "version"), VERSIONS, ids=lambda value: getattr(value, "name", str(value))
)
def test_the_response_of_every_version_has_an_error(api: Api, version: int) -> None:
    random = Random(f"{api.name} {version}")
    for _ in range(10):
        request: Any = a_message(api.request, version, random)
        sent = encode(error_response(api, request, BROKEN), version)
        codes = set(codes_in(decode(api.response, sent, version)))
        # A field that the version does not have is 0 once it is decoded.
        assert codes <= {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE}
        assert ErrorCode.UNKNOWN_SERVER_ERROR in codes or has_an_empty_list(request)


@pytest.mark.parametrize(
    ("name", "asked", "field"),
    [
        ("FindCoordinator", "coordinator_keys", "key"),
        ("DescribeGroups", "groups", "group_id"),
        ("DeleteGroups", "groups_names", "group_id"),
        ("ConsumerGroupDescribe", "group_ids", "group_id"),
        ("DescribeTransactions", "transactional_ids", "transactional_id"),
    ],
)
def test_a_response_names_what_its_request_names(name: str, asked: str, field: str) -> None:
    """The process of librdkafka ends if a described group has no id."""
    [api] = [each for each in TABLE if each.name == name]
    blank = a_message(api.request, api.versions[1], Random(1))
    request = msgspec.structs.replace(blank, **{asked: ["one", "two"]})
    answer = error_response(api, request, StoreUnavailable("away"))
    [rows] = [
        rows
        for part in answer.__struct_fields__
        if (rows := getattr(answer, part)) and isinstance(rows, list)
    ]
    assert [getattr(row, field) for row in rows] == ["one", "two"]
    assert not any(getattr(row, "error_message", None) for row in rows)


def test_each_partition_is_named_with_its_error() -> None:
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number, committed_offset=5, committed_metadata=""
                    )
                    for number in range(2)
                ],
            )
            for name in ("a", "b")
        ],
    )
    answer: Any = error_response(BY_KEY[28], request, BROKEN)
    reported = [
        (topic.name, row.partition_index, row.error_code)
        for topic in answer.topics
        for row in topic.partitions
    ]
    assert reported == [(name, number, -1) for name in ("a", "b") for number in range(2)]


@pytest.mark.parametrize("version", range(4))
def test_each_partition_of_a_transaction_is_named_with_its_error(version: int) -> None:
    """For a partition without a result, librdkafka repeats the request at once."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_topics=[NamedPartitions(name="a", partitions=[0, 1])],
    )
    sent = encode(error_response(BY_KEY[24], request, BROKEN), version)
    answer: Any = decode(BY_KEY[24].response, sent, version)
    [topic] = answer.results_by_topic_v3_and_below
    rows = [(row.partition_index, row.partition_error_code) for row in topic.results_by_partition]
    assert (topic.name, rows) == ("a", [(0, -1), (1, -1)])


def test_a_name_that_is_a_plain_string_is_in_the_response_too() -> None:
    away = StoreUnavailable("gone")
    answer: Any = error_response(BY_KEY[42], DeleteGroupsRequest(groups_names=["a", "b"]), away)
    assert [(row.group_id, row.error_code) for row in answer.results] == [
        ("a", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("b", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]


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
