"""DescribeTransactions (key 65): state and partitions of transactions."""

from korvet.wire.schema import Message, i16, i32, i64, message
from korvet.wire.structs import TopicPartitions


@message(key=65, versions=(0, 0), flexible=0, request=True)
class DescribeTransactionsRequest(Message):
    transactional_ids: list[str]


class TransactionState(Message):
    error_code: i16
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: i32
    transaction_start_time_ms: i64
    producer_id: i64
    producer_epoch: i16
    topics: list[TopicPartitions]


@message(key=65, versions=(0, 0), flexible=0, request=False)
class DescribeTransactionsResponse(Message):
    throttle_time_ms: i32 = 0
    transaction_states: list[TransactionState]
