"""ListTransactions. List transactional ids, filtered.

Behaviour
- a broker lists the ids that FindCoordinator gives it: clients ask all brokers
- ids that the client may not describe are left out
- unknown states are returned in unknown_state_filters and match nothing
- patterns are RE2's and match whole ids; INVALID_REGULAR_EXPRESSION for an invalid one
Versions
- v1 duration_filter, v2 transactional_id_pattern
"""

import asyncio

from korvet.base.errors import ErrorCode
from korvet.base.name_pattern import BadPattern, NamePattern
from korvet.context import Context
from korvet.scripts.calls.transaction import DescribeReply
from korvet.security.acl import Operation, ResourceType
from korvet.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

STATES = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    )
)


async def list_transactions(
    request: ListTransactionsRequest, context: Context
) -> ListTransactionsResponse:
    try:
        wanted = await _wanted(request.transactional_id_pattern or "", context)
    except BadPattern:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    ids = await context.services.coordinators.select_own(wanted, context.session.listener)
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in STATES],
        transaction_states=[
            TransactionState(
                transactional_id=name,
                producer_id=state.producer_id,
                transaction_state=state.state.decode(),
            )
            async for name, state in context.transactions.describe_all(ids)
            if not state.error and _matches(state, request)
        ],
    )


async def _wanted(text: str, context: Context) -> list[str]:
    """Return the ids that match the pattern; all ids if it is empty."""
    ids = [
        name
        for name in await context.transactions.list_ids()
        if context.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name, audit=False)
    ]
    if not text:
        return ids
    pattern = NamePattern(text)
    wanted = []
    for name in ids:
        if pattern.matches(name):
            wanted.append(name)
        await asyncio.sleep(0)  # one match of a large pattern takes long
    return wanted


def _matches(state: DescribeReply, request: ListTransactionsRequest) -> bool:
    if request.state_filters and state.state.decode() not in request.state_filters:
        return False
    if request.producer_id_filters and state.producer_id not in request.producer_id_filters:
        return False
    return request.duration_filter < 0 or state.now_ms - state.started > request.duration_filter
