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
- Nobody waits longer than REACH_S, however many brokers give no answer and however many keys are
  asked about: they are looked at side by side, and who was not there lately is looked at again
  while others are named. There is one look at a broker at a time: a lookup of its name that hangs
  keeps a thread of those that find Redis's name, too.
- Where brokers cannot reach each other at the addresses that clients are told, each names itself.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from itertools import takewhile
from time import monotonic

from korvet.bounded import gather_bounded
from korvet.cluster.registration import BrokerRegistration, LiveBroker

KNOWN_S = 1.0
REACH_S = 1.0
GONE_S = 10.0
"""So long nobody waits for one who was not there, even if what was found is no longer new."""

Reach = Callable[[str, int], Awaitable[bool]]


async def reach(host: str, port: int) -> bool:
    """Whether somebody takes connections there. However long it takes to look the name up."""
    loop = asyncio.get_running_loop()
    try:
        rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        async with asyncio.timeout(REACH_S):
            for address in dict.fromkeys(str(row[4][0]) for row in rows):
                if await _takes_connections(address, port):
                    return True
    except (OSError, UnicodeError, OverflowError):
        pass
    return False


async def _takes_connections(address: str, port: int) -> bool:
    try:
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, address, port
        )
    except OSError:
        return False
    transport.close()
    return True


class Look:
    """What was found of one broker, when, and the look that is on its way."""

    there: bool | None = None
    at = 0.0
    task: asyncio.Task[None] | None = None


class Coordinators:
    """The brokers that one broker names."""

    def __init__(self, membership: BrokerRegistration, reach: Reach = reach) -> None:
        self._membership = membership
        self._reach = reach
        self._looks: dict[LiveBroker, Look] = {}

    async def of(self, key: str) -> LiveBroker:
        """The broker that clients of the group or transactional id should work with."""
        me = self._membership.me
        nodes = in_order(self._membership.nodes, key)
        before = list(takewhile(lambda node: node.id != me.id, nodes))
        looks = [self._look(node) for node in before]
        for node, look in zip(before, looks, strict=True):
            if await _is_there(look):
                return node
        return nodes[len(before)] if len(before) < len(nodes) else me

    async def own(self, keys: list[str]) -> list[str]:
        """Those of the keys whose coordinator clients are told this broker is: all that are told
        under its address, where several share one, as behind a balancer."""
        me = self._membership.me
        if len(self._membership.nodes) < 2:
            return keys
        named = await gather_bounded(self.of, keys)
        here = (me.host, me.port)
        return [
            key for key, node in zip(keys, named, strict=True) if (node.host, node.port) == here
        ]

    def _look(self, node: LiveBroker) -> Look:
        look = self._looks.get(node)
        if look is None:
            listed = self._membership.nodes
            self._looks = {one: row for one, row in self._looks.items() if one in listed}
            look = self._looks[node] = Look()
        if look.task is None and (look.there is None or monotonic() - look.at > KNOWN_S):
            look.task = asyncio.create_task(self._find_out(node, look))
        return look

    async def _find_out(self, node: LiveBroker, look: Look) -> None:
        try:
            look.there = await self._reach(node.host, node.port)
        finally:
            look.at, look.task = monotonic(), None


async def _is_there(look: Look) -> bool:
    if look.task is None:
        return bool(look.there)
    if look.there is False and monotonic() - look.at < GONE_S:
        return False
    await asyncio.wait([look.task], timeout=REACH_S)
    if look.task is not None:
        look.there, look.at = False, monotonic()
    return bool(look.there)


def in_order(nodes: list[LiveBroker], key: str) -> list[LiveBroker]:
    """The nodes as all brokers rank them for the key."""

    def rank(node: LiveBroker) -> bytes:
        text = f"{node.id} {key}".encode("utf-8", "surrogateescape")
        return blake2b(text, digest_size=8).digest()

    return sorted(nodes, key=rank) if len(nodes) > 1 else nodes
