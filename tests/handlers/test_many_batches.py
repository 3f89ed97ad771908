"""A request of very many batches does not keep others from being served."""

import asyncio
from typing import Any

import pytest

from korvet.handlers import produce as handler
from korvet.handlers.produce import MANY_BATCHES
from tests.broker.peer import batch, to_produce
from tests.handlers.conftest import Broker


@pytest.mark.parametrize("count", [MANY_BATCHES, 2 * MANY_BATCHES + 1])
async def test_others_are_served_between_the_batches_of_one_request(
    broker: Broker, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", count)
    await broker.node.topics.refresh()
    seen: list[str] = []
    row: Any = handler._row

    def noted(*given: Any) -> Any:
        if not seen:
            asyncio.get_running_loop().call_soon(seen.append, "another's")
        seen.append("batch")
        return row(*given)

    monkeypatch.setattr(handler, "_row", noted)
    answer = await broker.ask(to_produce("t", [batch([b"v"])] * count), 8)
    (told,) = answer.responses
    assert [part.index for part in told.partition_responses] == list(range(count))
    assert {part.error_code for part in told.partition_responses} == {0}
    assert seen.count("batch") == count
    assert seen.index("another's") == MANY_BATCHES
