"""The groups of a node, for its handlers and its housekeeping."""

from korvet.context import Context, Services
from korvet.groups.coordinator import GroupCoordinator
from korvet.transactions.coordinator import Row


def groups_of(services: Services) -> GroupCoordinator:
    """The process's one: it remembers which groups are being looked after."""
    found = services.memory.get("groups")
    if not isinstance(found, GroupCoordinator):
        found = services.memory["groups"] = GroupCoordinator(
            services.store,
            services.keys,
            lambda: services.settings,
            services.notifier,
            services.metrics.rebalances.add,
            services.registration.present_ms,
        )
    return found


def groups(context: Context) -> GroupCoordinator:
    """The same, for a handler."""
    return groups_of(context.services)


def follow_transactions(services: Services) -> None:
    """What a transaction commits for a group moves the Redis group of that name, too."""

    async def follow(group_id: str, rows: list[Row]) -> None:
        move = services.settings.text("group.read.mode") == "offset"
        await groups_of(services).follow(group_id, rows, move=move)

    services.transactions.on_commit = follow
