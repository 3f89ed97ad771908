"""DescribeTransactions. Return the state of transactional ids.

Behaviour
- per id: state, producer, times and partitions; INVALID_REQUEST for an empty one and for one that
  is listed more than ten times, TRANSACTIONAL_ID_NOT_FOUND
- topics that the client may not describe are left out
- the partitions are those of the open transaction, or of one that is ending
"""

from korvet.base.bounded import gather_named
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.transactions.members import member_names, parse_partition_member
from korvet.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from korvet.wire.structs import TopicPartitions


async def describe_transactions(
    request: DescribeTransactionsRequest, context: Context
) -> DescribeTransactionsResponse:
    found = await gather_named(
        lambda name: _describe(name, context),
        lambda name: _refusal(name, ErrorCode.INVALID_REQUEST),
        request.transactional_ids,
    )
    return DescribeTransactionsResponse(transaction_states=found)


async def _describe(transactional_id: str, context: Context) -> TransactionState:
    if not transactional_id:
        return _refusal(transactional_id, ErrorCode.INVALID_REQUEST)
    state = await context.transactions.describe(transactional_id)
    if state.error:
        return _refusal(transactional_id, ErrorCode(state.error))
    by_topic: dict[str, list[int]] = {}
    for member in member_names(state.members):
        if member.startswith("p:"):
            topic, number = parse_partition_member(member)
            if not context.may_describe(topic, audit=False):
                continue
            by_topic.setdefault(topic, []).append(number)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=state.state.decode(),
        transaction_timeout_ms=state.timeout_ms,
        transaction_start_time_ms=state.started,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        topics=[
            TopicPartitions(topic=topic, partitions=sorted(numbers))
            for topic, numbers in sorted(by_topic.items())
        ],
    )


def _refusal(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(error_code=error, transactional_id=transactional_id)
