"""Choose the broker that FindCoordinator returns for a group or a transactional id.

Any broker can do the work of any other, since all state is in Redis. But librdkafka asks two
brokers when it starts. If each returned itself, two JoinGroup requests would reach Redis through
different brokers, in any order. A static member could then be fenced by its own earlier request.

Rules
- All brokers choose the same one for a key: the first live broker in an order that the key decides
  (rendezvous hashing). A broker that joins or leaves moves no key between the others.
- A dead broker stays registered until its registration ends. So before another broker is returned
  this one connects to it, and skips it if that fails. The result is cached for CACHE_S.
- A request waits at most CONNECT_TIMEOUT_S, however many brokers do not respond and however many
  keys it names: brokers are checked concurrently, and one that was unreachable lately is checked
  again in the background. There is one check of a broker at a time: a host name lookup that hangs
  holds a thread of the pool that also looks up Redis's name.
- A coordinator is returned with its address on the listener of the client that asked; brokers
  without that listener are not chosen.
- If brokers cannot reach each other at their advertised addresses, each returns itself.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from itertools import takewhile
from time import monotonic

from korvet.base.bounded import gather_bounded
from korvet.cluster.registration import BrokerRegistration, Node

CACHE_S = 1.0
"""Age up to which the result of a check is used."""
CONNECT_TIMEOUT_S = 1.0
"""Longest wait for a broker to accept a connection."""
UNREACHABLE_S = 10.0
"""Age up to which an unreachable broker is skipped without waiting for a new check."""

IsReachable = Callable[[str, int], Awaitable[bool]]


async def is_reachable(host: str, port: int) -> bool:
    """Return whether the address accepts connections.

    The timeout does not include the host name lookup.
    """
    loop = asyncio.get_running_loop()
    try:
        rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            for address in dict.fromkeys(str(row[4][0]) for row in rows):
                if await _accepts_connections(address, port):
                    return True
    except (OSError, UnicodeError, OverflowError):
        pass
    return False


async def _accepts_connections(address: str, port: int) -> bool:
    try:
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, address, port
        )
    except OSError:
        return False
    transport.close()
    return True


class ReachabilityCheck:
    """The last result for one broker, its time, and the check in progress."""

    reachable: bool | None = None
    checked_at = 0.0
    task: asyncio.Task[None] | None = None


class Coordinators:
    """Chooses coordinators among the registered brokers."""

    def __init__(
        self, registration: BrokerRegistration, is_reachable: IsReachable = is_reachable
    ) -> None:
        self._registration = registration
        self._is_reachable = is_reachable
        self._checks: dict[Node, ReachabilityCheck] = {}

    async def choose(self, key: str, listener: str) -> Node | None:
        """Return the coordinator of the group or transactional id, for clients of the listener.

        None if this broker has no such listener.
        """
        me = self._registration.me
        brokers = rank_brokers(self._registration.nodes(listener), key)
        preferred = list(takewhile(lambda broker: broker.id != me.id, brokers))
        checks = [self._check(broker) for broker in preferred]
        for broker, check in zip(preferred, checks, strict=True):
            if await _result(check):
                return broker
        return brokers[len(preferred)] if len(preferred) < len(brokers) else me.node(listener)

    async def select_own(self, keys: list[str], listener: str) -> list[str]:
        """Return the keys whose coordinator has this broker's address on the listener.

        Brokers that share an address, such as a load balancer's, are one coordinator.
        """
        me = self._registration.me.node(listener)
        if me is None or len(self._registration.nodes(listener)) < 2:
            return keys
        chosen = await gather_bounded(lambda key: self.choose(key, listener), keys)
        return [
            key
            for key, broker in zip(keys, chosen, strict=True)
            if broker is not None and (broker.host, broker.port) == (me.host, me.port)
        ]

    def _check(self, broker: Node) -> ReachabilityCheck:
        """Return the broker's check, starting a new one if the result is too old."""
        check = self._checks.get(broker)
        if check is None:
            registered = {
                Node(each.id, endpoint.host, endpoint.port, each.rack)
                for each in self._registration.brokers
                for endpoint in each.endpoints
            }
            self._checks = {one: row for one, row in self._checks.items() if one in registered}
            check = self._checks[broker] = ReachabilityCheck()
        if check.task is None and (
            check.reachable is None or monotonic() - check.checked_at > CACHE_S
        ):
            check.task = asyncio.create_task(self._run(broker, check))
        return check

    async def _run(self, broker: Node, check: ReachabilityCheck) -> None:
        try:
            check.reachable = await self._is_reachable(broker.host, broker.port)
        finally:
            check.checked_at, check.task = monotonic(), None


async def _result(check: ReachabilityCheck) -> bool:
    """Return a check's result, waiting for it unless the broker was unreachable lately."""
    if check.task is None:
        return bool(check.reachable)
    if check.reachable is False and monotonic() - check.checked_at < UNREACHABLE_S:
        return False
    await asyncio.wait([check.task], timeout=CONNECT_TIMEOUT_S)
    if check.task is not None:
        check.reachable, check.checked_at = False, monotonic()
    return bool(check.reachable)


def rank_brokers(brokers: list[Node], key: str) -> list[Node]:
    """Return the brokers in the key's order, the same on every broker."""

    def rank(broker: Node) -> bytes:
        text = f"{broker.id} {key}".encode("utf-8", "surrogateescape")
        return blake2b(text, digest_size=8).digest()

    return sorted(brokers, key=rank) if len(brokers) > 1 else brokers
