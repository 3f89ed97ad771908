"""ListTransactions (key 66): transactional ids, or those of given states and producers."""

from typing import Annotated

from korvet.wire.schema import Field, Message, Response, i16, i64, request, response


@request(key=66, versions=(0, 2), flexible=0)
class ListTransactionsRequest(Message):
    state_filters: list[str]
    producer_id_filters: list[i64]
    duration_filter: Annotated[i64, Field(since=1)] = -1
    """Milliseconds a transaction must have been open; -1: any."""
    transactional_id_pattern: Annotated[str | None, Field(since=2)] = None


class TransactionState(Message):
    transactional_id: str
    producer_id: i64
    transaction_state: str


@response(ListTransactionsRequest)
class ListTransactionsResponse(Response):
    error_code: i16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[TransactionState] = []
