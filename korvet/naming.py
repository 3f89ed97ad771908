"""Which broker clients are told coordinates a group or a transactional id.

Any broker does the work of any other, since all state is in Redis. But librdkafka asks two brokers
as it starts, and where each names itself, two requests to join are on the way to different brokers:
the one that is carried out last counts, and a static member can be fenced by its own first one.

Rules
- All brokers name the same one for a key: of those that are listed the first in an order that the
  key decides. So whoever comes or goes moves nothing between the others.
- A broker that died stays listed until its registration ends. No client is sent there meanwhile:
  before another broker is named it is connected to, and passed over where that fails. What was
  found holds for KNOWN_S, for all who ask.
- Where brokers cannot reach each other at the addresses that clients are told, each names itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from time import monotonic

from korvet.membership import Membership, Node

KNOWN_S = 1.0
REACH_S = 1.0

Reach = Callable[[str, int], Awaitable[bool]]


async def reach(host: str, port: int) -> bool:
    """Whether somebody takes connections there."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(REACH_S):
            transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
    except (OSError, UnicodeError):
        return False
    transport.close()
    return True


class Coordinators:
    """The brokers that one broker names."""

    def __init__(self, membership: Membership, reach: Reach = reach) -> None:
        self._membership = membership
        self._reach = reach
        self._looked: dict[Node, tuple[float, asyncio.Future[bool]]] = {}

    async def of(self, key: str) -> Node:
        """The broker that clients of the group or transactional id should work with."""
        me = self._membership.me
        for node in in_order(self._membership.nodes, key):
            if node.id == me.id or await self._is_there(node):
                return node
        return me

    async def _is_there(self, node: Node) -> bool:
        now = monotonic()
        at, found = self._looked.get(node, (now, None))
        if found is None or now - at > KNOWN_S:
            listed = self._membership.nodes
            self._looked = {one: row for one, row in self._looked.items() if one in listed}
            found = asyncio.ensure_future(self._reach(node.host, node.port))
            self._looked[node] = now, found
        return await asyncio.shield(found)


def in_order(nodes: list[Node], key: str) -> list[Node]:
    """The nodes as all brokers rank them for the key."""

    def rank(node: Node) -> bytes:
        text = f"{node.id} {key}".encode("utf-8", "surrogateescape")
        return blake2b(text, digest_size=8).digest()

    return sorted(nodes, key=rank) if len(nodes) > 1 else nodes
