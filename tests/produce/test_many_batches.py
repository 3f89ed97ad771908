"""Check produce requests with many batches: they yield to other requests, and are sent whole."""

import asyncio
from typing import Any

import pytest

from korvet.produce.service import BATCHES_PER_ITERATION, ProduceService
from tests.support.connected_broker import Broker
from tests.support.raw_client import batch, to_produce


@pytest.mark.parametrize("count", [BATCHES_PER_ITERATION, 2 * BATCHES_PER_ITERATION + 1])
async def test_other_requests_are_served_between_the_batches_of_one_request(
    broker: Broker, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", count)
    await broker.services.topics.refresh()
    seen: list[str] = []
    append: Any = ProduceService._append

    def counted(*given: Any) -> Any:
        if not seen:
            asyncio.get_running_loop().call_soon(seen.append, "another request")
        seen.append("batch")
        return append(*given)

    monkeypatch.setattr(ProduceService, "_append", counted)
    answer = await broker.ask(to_produce("t", [batch([b"v"])] * count), 8)
    (topic,) = answer.responses
    assert [part.index for part in topic.partition_responses] == list(range(count))
    assert {part.error_code for part in topic.partition_responses} == {0}
    assert seen.count("batch") == count
    assert seen.index("another request") == BATCHES_PER_ITERATION


async def test_all_batches_of_a_request_are_sent_if_its_client_disconnects(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * BATCHES_PER_ITERATION
    await broker.create("t", count)
    await broker.services.topics.refresh()
    sent: list[int] = []
    begun = asyncio.Event()
    append: Any = ProduceService._append

    def counted(*given: Any) -> Any:
        sent.append(given[4].index)
        begun.set()
        return append(*given)

    monkeypatch.setattr(ProduceService, "_append", counted)
    asking = asyncio.ensure_future(broker.ask(to_produce("t", [batch([b"v"])] * count, acks=0), 8))
    await begun.wait()
    assert len(sent) == BATCHES_PER_ITERATION
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    for _ in range(count // BATCHES_PER_ITERATION):
        await asyncio.sleep(0)
    assert sent == list(range(count))
