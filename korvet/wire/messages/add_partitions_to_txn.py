"""AddPartitionsToTxn (key 24): add partitions to transactions.

Up to 3 from clients, one transaction a request; from 4 on between brokers, several at once.
"""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i16, i32, i64, request, response
from korvet.wire.structs import NamedPartitions


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str
    producer_id: i64
    producer_epoch: i16
    verify_only: bool = False
    """Only check whether the partitions are in the transaction."""
    topics: list[NamedPartitions]


@request(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest(Message):
    transactions: Annotated[list[AddPartitionsToTxnTransaction], Field(since=4)] = []
    v3_and_below_transactional_id: Annotated[str, Field(until=3)] = ""
    v3_and_below_producer_id: Annotated[i64, Field(until=3)] = 0
    v3_and_below_producer_epoch: Annotated[i16, Field(until=3)] = 0
    v3_and_below_topics: Annotated[list[NamedPartitions], Field(until=3)] = []


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: i32
    partition_error_code: i16 = 0


class AddPartitionsToTxnTopicResult(Message):
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Message):
    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]


@response(AddPartitionsToTxnRequest)
class AddPartitionsToTxnResponse(Response):
    error_code: Annotated[i16, Field(since=4)] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], Field(since=4)] = []
    results_by_topic_v3_and_below: Annotated[
        list[AddPartitionsToTxnTopicResult], Field(until=3)
    ] = []
