"""Read transactional ids: their state, and how long a transaction is open."""

from collections.abc import Sequence

import msgspec

from korvet.console.visit import Visit
from korvet.security.acl import Operation, ResourceType
from korvet.wire.messages.describe_transactions import DescribeTransactionsRequest

PAGE = 50
"""Transactional ids on a page."""
MAX_IDS = 5_000
"""Max ids whose state a page reads, to show open transactions first."""
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")


class TransactionRow(msgspec.Struct, frozen=True):
    """A transactional id."""

    id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    open_ms: int
    """Ms since the transaction began, -1 if none is open."""
    partitions: list[str]
    """Up to ten partitions of the open transaction, as `topic-partition`."""
    partition_count: int


class Transactions(msgspec.Struct, frozen=True):
    """A page of the transactional ids, those with an open transaction first."""

    transactions: Sequence[TransactionRow]
    total: int
    open: int
    page: int
    pages: int
    search: str
    is_complete: bool
    """False if there are more ids than a page reads: open ones may be on later pages."""
    is_sorted: bool
    """False if there are too many ids to sort more than this page."""


async def load(visit: Visit) -> Transactions:
    """Return one page of the transactional ids that the user may describe."""
    search, services = visit.query("q"), visit.services
    names = sorted(
        name
        for name in await services.transactions.list_ids()
        if search.lower() in name.lower()
        and visit.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
    )
    read = names[:MAX_IDS]
    is_open, now_ms = dict.fromkeys(names, False), 0
    async for name, state in services.transactions.describe_all(read):
        is_open[name] = not state.error and state.state.decode() in _OPEN
        now_ms = max(now_ms, state.now_ms)
    names.sort(key=lambda name: not is_open[name])
    rows, page, pages, is_sorted = await visit.list_of(
        names, PAGE, lambda shown: _rows(visit, shown, now_ms)
    )
    return Transactions(
        rows,
        len(names),
        sum(is_open.values()),
        page,
        pages,
        search,
        len(read) == len(names),
        is_sorted,
    )


async def _rows(visit: Visit, names: Sequence[str], now_ms: int) -> list[TransactionRow]:
    if not names:
        return []
    answer = await visit.call(DescribeTransactionsRequest(transactional_ids=list(names)))
    rows = []
    for state in answer.transaction_states:
        if state.error_code:
            continue  # it expired meanwhile
        places = [f"{each.topic}-{number}" for each in state.topics for number in each.partitions]
        is_open = state.transaction_state in _OPEN and state.transaction_start_time_ms >= 0
        rows.append(
            TransactionRow(
                state.transactional_id,
                state.transaction_state,
                state.producer_id,
                state.producer_epoch,
                state.transaction_timeout_ms,
                max(0, now_ms - state.transaction_start_time_ms) if is_open else -1,
                sorted(places)[:10],
                len(places),
            )
        )
    return rows
