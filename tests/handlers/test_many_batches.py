"""A request of very many batches does not keep others from being served, and is stored whole."""

import asyncio
from typing import Any

import pytest

from korvet.handlers import produce as handler
from korvet.handlers.produce import MANY_BATCHES
from tests.handlers.conftest import Broker
from tests.support.raw_client import batch, to_produce


@pytest.mark.parametrize("count", [MANY_BATCHES, 2 * MANY_BATCHES + 1])
async def test_others_are_served_between_the_batches_of_one_request(
    broker: Broker, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", count)
    await broker.services.topics.refresh()
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


async def test_all_of_a_request_is_sent_when_its_client_hangs_up_meanwhile(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * MANY_BATCHES
    await broker.create("t", count)
    await broker.services.topics.refresh()
    sent: list[int] = []
    begun = asyncio.Event()
    row: Any = handler._row

    def noted(*given: Any) -> Any:
        sent.append(given[2].index)
        begun.set()
        return row(*given)

    monkeypatch.setattr(handler, "_row", noted)
    asking = asyncio.ensure_future(broker.ask(to_produce("t", [batch([b"v"])] * count, acks=0), 8))
    await begun.wait()
    assert len(sent) == MANY_BATCHES
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    for _ in range(count // MANY_BATCHES):
        await asyncio.sleep(0)
    assert sent == list(range(count))
