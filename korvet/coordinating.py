"""The groups of a node, for its handlers and its housekeeping."""

from korvet.context import Context, Node
from korvet.groups import Groups
from korvet.transactions import Row


def groups_of(node: Node) -> Groups:
    """The process's one: it remembers which groups are being looked after."""
    found = node.memory.get("groups")
    if not isinstance(found, Groups):
        found = node.memory["groups"] = Groups(
            node.store,
            node.keys,
            lambda: node.settings,
            node.wake,
            node.metrics.rebalances.add,
            node.membership.present_ms,
        )
    return found


def groups(context: Context) -> Groups:
    """The same, for a handler."""
    return groups_of(context.node)


def follow_transactions(node: Node) -> None:
    """What a transaction commits for a group moves the Redis group of that name, too."""

    async def follow(group_id: str, rows: list[Row]) -> None:
        move = node.settings.text("group.read.mode") == "offset"
        await groups_of(node).follow(group_id, rows, move=move)

    node.transactions.on_commit = follow
