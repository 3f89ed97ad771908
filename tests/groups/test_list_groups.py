"""Check the groups that one of several brokers lists: clients merge the responses of all."""

import pytest

from korvet.cluster.coordinators import Coordinators
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from korvet.wire.messages.list_groups import ListGroupsRequest
from korvet.wire.messages.list_transactions import ListTransactionsRequest
from tests.groups.test_classic_groups import commit
from tests.support.connected_broker import Broker

NAMES = [f"g{number}" for number in range(12)]


async def listed(broker: Broker) -> list[list[str]]:
    """Return the groups and transactional ids in the broker's responses."""
    groups = await broker.ask(ListGroupsRequest(states_filter=[], types_filter=[]))
    transactions = await broker.ask(
        ListTransactionsRequest(
            state_filters=[],
            producer_id_filters=[],
            duration_filter=-1,
            transactional_id_pattern=None,
        )
    )
    return [
        sorted(row.group_id for row in groups.groups),
        sorted(row.transactional_id for row in transactions.transaction_states),
    ]


async def fill(broker: Broker) -> None:
    await broker.create("t")
    for name in NAMES:
        await commit(broker, group_id=name, generation_id_or_member_epoch=-1, member_id="")
        await broker.services.transactions.init(
            name, timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )


@pytest.mark.parametrize("there", [True, False])
async def test_a_group_or_transactional_id_is_listed_by_the_broker_that_coordinates_it(
    broker: Broker, there: bool
) -> None:
    await fill(broker)
    assert await listed(broker) == [sorted(NAMES)] * 2
    await broker.second()

    async def reach(host: str, port: int) -> bool:
        return there

    broker.services.coordinators = Coordinators(broker.services.registration, reach)
    answer = await broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES))
    own = sorted(row.key for row in answer.coordinators if row.node_id == 7)
    assert (len(own) < len(NAMES)) is there
    assert await listed(broker) == [own] * 2


async def test_brokers_that_clients_reach_under_one_address_list_all(broker: Broker) -> None:
    await fill(broker)
    await broker.second(host="me")

    async def reach(host: str, port: int) -> bool:
        return True

    broker.services.coordinators = Coordinators(broker.services.registration, reach)
    assert await listed(broker) == [sorted(NAMES)] * 2
