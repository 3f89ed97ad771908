"""FindCoordinator, ListGroups, DescribeGroups, DeleteGroups and InitProducerId."""

from typing import Any

import msgspec

from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.list_groups import ListGroupsRequest
from tests.conformance.asking import Ask, case
from tests.conformance.cases.membership import leaving
from tests.conformance.cases.offsets import committing


@case("FindCoordinator", since=1)
async def coordinators_of_an_unknown_key_type(ask: Ask) -> Any:
    return [
        await ask(FindCoordinatorRequest(key="k", key_type=kind, coordinator_keys=["k", "l"]))
        for kind in (3, 5, -1)
    ]


@case("FindCoordinator", since=4)
async def coordinators_of_nothing(ask: Ask) -> Any:
    return await ask(FindCoordinatorRequest(coordinator_keys=[]))


@case("FindCoordinator")
async def a_coordinator_for_a_group_without_a_name(ask: Ask) -> Any:
    return await ask(FindCoordinatorRequest(key="", coordinator_keys=["", "", "g"]))


@case("FindCoordinator", since=1)
async def a_coordinator_for_a_transaction_without_a_name(ask: Ask) -> Any:
    return await ask(FindCoordinatorRequest(key="", key_type=1, coordinator_keys=["", "x"]))


@case("FindCoordinator", since=2, until=5)
async def a_coordinator_for_shares_in_older_versions(ask: Ask) -> Any:
    return await ask(FindCoordinatorRequest(key="k", key_type=2, coordinator_keys=["k"]))


async def listed(ask: Ask, states: list[str], types: list[str]) -> Any:
    answer = await ask(ListGroupsRequest(states_filter=states, types_filter=types))
    mine = [row for row in answer.groups if row.group_id.startswith(ask.group)]
    return msgspec.structs.replace(answer, groups=sorted(mine, key=lambda row: row.group_id))


@case("ListGroups")
async def every_group(ask: Ask) -> Any:
    await ask.stable()
    await ask.joined(group_id=f"{ask.group}-begins")
    await ask(await committing(ask, group_id=f"{ask.group}-simple"), 8)
    gone = await ask.stable(group_id=f"{ask.group}-empty")
    await ask(leaving(gone.group, gone.id), 1)
    return await listed(ask, [], [])


@case("ListGroups", since=4)
async def groups_by_state(ask: Ask) -> Any:
    await ask.stable()
    await ask(await committing(ask, group_id=f"{ask.group}-simple"), 8)
    return [
        await listed(ask, states, [])
        for states in (["Stable"], ["STABLE", "Empty"], ["bogus"], [""], ["Dead"], [" stable"])
    ]


@case("ListGroups", since=5)
async def groups_by_type(ask: Ask) -> Any:
    await ask.stable()
    await ask(await committing(ask, group_id=f"{ask.group}-simple"), 8)
    return [
        await listed(ask, ["Stable"], types)
        for types in (["classic"], ["CLASSIC"], ["consumer"], ["bogus"], [""], ["share", "classic"])
    ]


@case("DescribeGroups")
async def unknown_groups(ask: Ask) -> Any:
    return await ask(DescribeGroupsRequest(groups=[ask.group, "x" * 300]))


@case("DescribeGroups")
async def no_groups_at_all(ask: Ask) -> Any:
    return [
        await ask(DescribeGroupsRequest(groups=[])),
        await ask(DeleteGroupsRequest(groups_names=[]), 2),
    ]


@case("DescribeGroups")
async def groups_in_every_state(ask: Ask) -> Any:
    await ask.stable()
    await ask.joined(group_id=f"{ask.group}-begins")
    await ask(await committing(ask, group_id=f"{ask.group}-simple"), 8)
    gone = await ask.stable(group_id=f"{ask.group}-empty")
    await ask(leaving(gone.group, gone.id), 1)
    names = [ask.group, *(f"{ask.group}-{word}" for word in ("begins", "simple", "empty"))]
    return [
        await ask(DescribeGroupsRequest(groups=names)),
        await ask(DescribeGroupsRequest(groups=[ask.group, ask.group])),
    ]


@case("DescribeGroups", since=3)
async def authorized_operations_of_a_group(ask: Ask) -> Any:
    await ask(await committing(ask), 8)
    names = [ask.group, f"{ask.group}-absent"]
    return await ask(DescribeGroupsRequest(groups=names, include_authorized_operations=True))


@case("DeleteGroups")
async def delete_unknown_groups(ask: Ask) -> Any:
    return [await ask(DeleteGroupsRequest(groups_names=[name])) for name in (ask.group, "x" * 300)]


@case("DeleteGroups")
async def delete_the_group_without_a_name(ask: Ask) -> Any:
    await ask(DeleteGroupsRequest(groups_names=[""]))
    first = await ask(DeleteGroupsRequest(groups_names=[""]))
    await ask(await committing(ask, group_id=""), 8)
    return [first, await ask(DeleteGroupsRequest(groups_names=[""]))]


@case("DeleteGroups")
async def delete_groups_with_members(ask: Ask) -> Any:
    await ask.stable()
    begins = await ask.joined(group_id=f"{ask.group}-begins")
    names = [ask.group, begins.group]
    return [await ask(DeleteGroupsRequest(groups_names=[name])) for name in names]


@case("DeleteGroups")
async def delete_groups_at_rest(ask: Ask) -> Any:
    await ask(await committing(ask), 8)
    gone = await ask.stable(group_id=f"{ask.group}-empty")
    await ask(leaving(gone.group, gone.id), 1)
    names = [ask.group, gone.group]
    first = [await ask(DeleteGroupsRequest(groups_names=[name])) for name in names]
    again = [await ask(DeleteGroupsRequest(groups_names=[name])) for name in names]
    return [*first, *again]


@case("DeleteGroups")
async def delete_a_group_named_twice(ask: Ask) -> Any:
    await ask(await committing(ask), 8)
    answer = await ask(DeleteGroupsRequest(groups_names=[ask.group, ask.group]))
    return sorted(row.error_code for row in answer.results)


@case("InitProducerId")
async def a_producer_without_a_transactional_name(ask: Ask) -> Any:
    asked = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    return await ask(asked)


@case("InitProducerId")
async def transactions_that_may_take_any_time(ask: Ask) -> Any:
    answers = [
        await ask(
            InitProducerIdRequest(
                transactional_id=f"{ask.group}{number}", transaction_timeout_ms=number
            )
        )
        for number in (0, -1, 900_001)
    ]
    return [(row.error_code, row.producer_id, row.producer_epoch) for row in answers]


@case("InitProducerId")
async def an_idempotent_producers_timeout_means_nothing(ask: Ask) -> Any:
    answers = [
        await ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=number))
        for number in (0, -1, 2**31 - 1)
    ]
    return [(row.error_code, row.producer_epoch, row.producer_id >= 0) for row in answers]


@case("InitProducerId", since=3)
async def half_of_a_producers_name(ask: Ask) -> Any:
    found = []
    for name in (None, ask.group):
        for producer, epoch in ((5, -1), (-1, 5), (-5, -5), (1 << 40, 3)):
            asked = InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=1000,
                producer_id=producer,
                producer_epoch=epoch,
            )
            answer = await ask(asked)
            found.append((answer.error_code, answer.producer_id >= 0, answer.producer_epoch))
    return found
