"""The groups of a node, for its handlers and its housekeeping."""

from korvet.context import Context, Node
from korvet.groups import Groups


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
        )
    return found


def groups(context: Context) -> Groups:
    """The same, for a handler."""
    return groups_of(context.node)
