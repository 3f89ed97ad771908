"""Check ListTransactions: the ids that a pattern lists, and that no pattern is slow."""

import pytest

from korvet.base.errors import ErrorCode
from korvet.wire.messages.list_transactions import ListTransactionsRequest
from tests.support.connected_broker import Broker

LONG = "a" * 200 + "!"
IDS = ["orders-1", "orders-2", "app:0_1 ü", LONG]


async def listed(broker: Broker, pattern: str | None) -> tuple[int, list[str]]:
    """Return the response's error, and its ids."""
    request = ListTransactionsRequest(
        state_filters=[],
        producer_id_filters=[],
        duration_filter=-1,
        transactional_id_pattern=pattern,
    )
    answer = await broker.ask(request)
    return answer.error_code, sorted(row.transactional_id for row in answer.transaction_states)


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (None, IDS),
        ("", IDS),
        (".*", IDS),
        ("orders", []),
        ("orders-[^1]", ["orders-2"]),
        (r"app:\d_\d .", ["app:0_1 ü"]),
        ("(a+)+", []),
        ("((a|a)*)*!", [LONG]),
    ],
)
async def test_a_pattern_lists_the_ids_it_matches_whole(
    broker: Broker, pattern: str | None, wanted: list[str]
) -> None:
    for name in IDS:
        await broker.services.transactions.init(
            name, timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
    assert await listed(broker, pattern) == (0, sorted(wanted))


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "a**"])
async def test_what_is_no_pattern_of_re2_is_refused(broker: Broker, pattern: str) -> None:
    assert await listed(broker, pattern) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])
