"""DescribeTransactions (key 65): state and partitions of transactions."""

from korvet.wire.schema import Message, Response, i16, i32, i64, request, response
from korvet.wire.structs import TopicPartitions


@request(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest(Message):
    transactional_ids: list[str]


class TransactionState(Message):
    error_code: i16 = 0
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: i32 = 0
    transaction_start_time_ms: i64 = 0
    producer_id: i64 = 0
    producer_epoch: i16 = 0
    topics: list[TopicPartitions] = []


@response(DescribeTransactionsRequest)
class DescribeTransactionsResponse(Response):
    transaction_states: list[TransactionState]
