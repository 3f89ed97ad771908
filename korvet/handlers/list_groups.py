"""ListGroups. List all groups, filtered by state and type.

Behaviour
- a broker lists the groups that FindCoordinator gives it: clients ask all brokers, and some count a
  group that two brokers list twice
- without DESCRIBE on the cluster, only the groups that the client may describe
- filters ignore case, an unknown state or type matches no group
Versions
- v4 states, v5 types
"""

from collections.abc import Awaitable
from typing import Any

from korvet.base.bounded import gather_bounded
from korvet.context import Context
from korvet.security.acl import CLUSTER_NAME, Operation, ResourceType
from korvet.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def list_groups(request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    names = await context.services.coordinators.select_own(
        await context.services.groups.registry.list_all(), context.session.listener
    )

    def shows(kind: ResourceType, name: str) -> bool:
        return context.allows(Operation.DESCRIBE, kind, name, audit=False)

    if not shows(ResourceType.CLUSTER, CLUSTER_NAME):
        names = [name for name in names if shows(ResourceType.GROUP, name)]

    def read(name: str) -> Awaitable[Any]:
        key = context.keys.group(name).group
        return context.store.command("HMGET", key, "state", "protocol_type", "type")

    rows = await gather_bounded(read, names)
    states = {word.strip().lower() for word in request.states_filter}
    types = {word.strip().lower() for word in request.types_filter}
    found = []
    for name, (state, protocol_type, kind) in zip(names, rows, strict=True):
        if state is None:
            continue
        if states and state.decode().lower() not in states:
            continue
        if types and kind.decode().lower() not in types:
            continue
        found.append(
            ListedGroup(
                group_id=name,
                protocol_type=(protocol_type or b"").decode(),
                group_state=state.decode(),
                group_type=kind.decode(),
            )
        )
    return ListGroupsResponse(groups=found)
