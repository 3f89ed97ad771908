"""Check InitProducerId with unknown ids and epochs, with the codes of Apache Kafka 4.3.0."""

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from tests.support.connected_broker import Broker


async def init(
    broker: Broker, transactional_id: str | None, producer_id: int, epoch: int
) -> tuple[E, int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    answer = await broker.ask(request)
    return E(answer.error_code), answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("transactional_id", [None, "x"])
@pytest.mark.parametrize("who", [(-1, -2), (-1, 0), (-2, -1), (5, -1)])
async def test_an_id_without_an_epoch_is_no_producer(
    broker: Broker, transactional_id: str | None, who: tuple[int, int]
) -> None:
    assert await init(broker, transactional_id, *who) == (E.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("who", [(-2, -2), (-2, 0), (5, -2)])
async def test_only_minus_one_is_none(broker: Broker, who: tuple[int, int]) -> None:
    error, _, epoch = await init(broker, None, *who)
    assert (error, epoch) == (E.NONE, 0)
    error, producer_id, epoch = await init(broker, "x", *who)
    assert (error, epoch) == (E.NONE, 0)  # the id is unused: a fresh one
    assert await init(broker, "x", *who) == (E.PRODUCER_FENCED, -1, -1)
    assert await init(broker, "x", producer_id, -2) == (E.PRODUCER_FENCED, -1, -1)
    assert await init(broker, "x", -1, -1) == (E.NONE, producer_id, 1)
