"""Register this broker in Redis and list the live brokers."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

import msgspec

from korvet.base.uptime import clock
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore

TTL_MS = 10_000
"""Age at which a registration that is not renewed ends."""
SILENT_MS = 1_300
"""Age of a renewal from which clients are no longer sent to the broker."""
HEARTBEAT_S = 0.3
"""Longest wait for a message on the brokers channel before the next renewal."""
MIN_RENEWAL_GAP_S = 0.2
"""Seconds after a renewal in which no message triggers the next one."""

R = TypeVar("R")


class Endpoint(msgspec.Struct, frozen=True):
    """The address of a broker for the clients of one listener."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{self.host}:{self.port}"


class Node(msgspec.Struct, frozen=True):
    """A live broker, as the clients of one listener see it."""

    id: int
    host: str
    port: int
    rack: str | None = None


class LiveBroker(msgspec.Struct, frozen=True):
    """A live broker, as it is registered."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def node(self, listener: str) -> Node | None:
        """Return the broker as clients of the listener see it, None without such a listener."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return Node(self.id, endpoint.host, endpoint.port, self.rack)
        return None

    @property
    def addresses(self) -> str:
        """The endpoints as Kafka writes them in advertised.listeners."""
        return ",".join(map(str, self.endpoints))


class BrokerRegistration:
    """Registration of this broker, and the live brokers of the last renewal."""

    def __init__(self, store: AsyncStore, keys: Keys, me: LiveBroker, cluster_id: str) -> None:
        self.me = me
        self.controller = me.id
        self.cluster_id = cluster_id
        self.brokers: list[LiveBroker] = [me]
        self._store = store
        self._keys = keys
        self._alone_since: float | None = None
        self._left = False
        self.on_lapse: Callable[[str, float], None] | None = None
        """Called if this process did not run without its clock noticing: why, and for how long."""
        self._renewed: tuple[float, int] | None = None
        """When the last renewal began, and Redis's time then in ms."""

    async def join(self) -> None:
        """Set the cluster id if there is none, and register this broker."""
        reply = await self._store.run(self._keys.broker_init_cluster_id(cluster_id=self.cluster_id))
        self.cluster_id = reply.cluster_id.decode()
        await self.heartbeat()
        if all(other.id == self.me.id for other in self.brokers):
            self._alone_since = monotonic()

    def first_broker_age_ms(self) -> int:
        """Return the ms since this broker joined, if no other was live then; else -1."""
        if self._alone_since is None:
            return -1
        return int((monotonic() - self._alone_since) * 1000)

    async def heartbeat(self) -> LiveBroker | None:
        """Renew the registration for TTL_MS and read the live brokers.

        Returns the live broker that was registered under this node id, if there is one.
        """
        if self._left:
            return None
        began = clock()
        reply = await self._store.run(
            self._keys.broker_register(
                node_id=self.me.id,
                address=msgspec.json.encode(self.me),
                ttl_ms=TTL_MS,
                silent_ms=SILENT_MS,
            )
        )
        self._look_for_lapse(began, reply.now_ms)
        self.controller = reply.controller
        rows = [row for row in reply.brokers if isinstance(row, bytes)]
        found = [msgspec.json.decode(row, type=LiveBroker) for row in rows]
        self.brokers = sorted(found, key=lambda row: row.id)
        return msgspec.json.decode(reply.other, type=LiveBroker) if reply.other else None

    def _look_for_lapse(self, began: float, now_ms: int) -> None:
        """Compare the clocks: a paused virtual machine may have stopped this process and its own.

        A shorter pause looks like a step of Redis's clock.
        """
        before, self._renewed = self._renewed, (began, now_ms)
        if before is None or self.on_lapse is None:
            return
        passed_ms, seen_ms = now_ms - before[1], (clock() - before[0]) * 1000
        if passed_ms > TTL_MS and seen_ms < TTL_MS:
            self.on_lapse("the registration had ended", (passed_ms - seen_ms) / 1000)

    async def read(self) -> tuple[list[LiveBroker], int]:
        """Read the live brokers and the controller without a registration of this process."""
        flat = await self._store.command("HGETALL", self._keys.brokers())
        rows = dict(zip(flat[::2], flat[1::2], strict=True))
        controller = int(rows.pop(b":controller", -1))
        now_s, _ = await self._store.command("TIME")
        found = []
        for row in rows.values():
            ends_ms, _, address = row.partition(b" ")
            if address and int(ends_ms) >= int(now_s) * 1000:
                found.append(msgspec.json.decode(address, type=LiveBroker))
        self.brokers = sorted(found, key=lambda broker: broker.id)
        self.controller = controller
        return self.brokers, controller

    def nodes(self, listener: str) -> list[Node]:
        """Return the live brokers that have the listener, with its addresses, by id.

        As in Kafka, the others are left out: a client cannot use an address of another listener.
        """
        found = (broker.node(listener) for broker in self.brokers)
        return [node for node in found if node is not None]

    def controller_of(self, nodes: Sequence[Node]) -> int:
        """Return the controller if it is among the nodes, else another one of them."""
        if not nodes or any(node.id == self.controller for node in nodes):
            return self.controller
        return nodes[0].id

    async def leave(self) -> None:
        """Remove the registration.

        Other workers with this node id register it again when they are notified.
        """
        self._left = True
        # Metadata names the others from now on.
        self.brokers = [other for other in self.brokers if other.id != self.me.id] or [self.me]
        await self._store.run(
            self._keys.broker_unregister(node_id=self.me.id, address=msgspec.json.encode(self.me))
        )


def leader_of(partition: int, nodes: Sequence[Node]) -> int:
    """Return the leader that Metadata reports, chosen to spread clients over brokers."""
    return nodes[partition % len(nodes)].id if nodes else -1


def partition_rows(
    row: Callable[..., R], numbers: range, nodes: Sequence[Node], epoch: int
) -> list[R]:
    """Return a `row` of the response for each partition: its leader is its only replica."""
    leaders = ((number, leader_of(number, nodes)) for number in numbers)
    return [
        row(
            partition_index=number,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[leader],
            isr_nodes=[leader],
        )
        for number, leader in leaders
    ]
