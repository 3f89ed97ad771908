"""Which brokers are alive, as Redis has it: each says so again and again."""

from time import monotonic

import msgspec

from korvet.keys import Keys
from korvet.scripts import broker
from korvet.store.async_store import AsyncStore

TTL_MS = 10_000
BEAT_S = 3.0


class LiveBroker(msgspec.Struct, frozen=True):
    """One live broker, as Metadata lists it."""

    id: int
    host: str
    port: int
    rack: str | None = None


class BrokerRegistration:
    """This broker's registration, and the list that came back with the last one."""

    def __init__(self, store: AsyncStore, keys: Keys, me: LiveBroker, cluster_id: str) -> None:
        self.me = me
        self.controller = me.id
        self.cluster_id = cluster_id
        self.nodes: list[LiveBroker] = [me]
        self._store = store
        self._keys = keys
        self._alone_since: float | None = None
        self._left = False

    async def join(self) -> None:
        """The cluster has an id, and this broker is part of it."""
        named = await self._store.run(
            broker.init_cluster_id(self._keys, cluster_id=self.cluster_id)
        )
        self.cluster_id = named.cluster_id.decode()
        await self.beat()
        if all(node.id == self.me.id for node in self.nodes):
            self._alone_since = monotonic()

    def present_ms(self) -> int:
        """For how long clients have had a broker again; -1 if others were there before this one."""
        if self._alone_since is None:
            return -1
        return int((monotonic() - self._alone_since) * 1000)

    async def beat(self) -> LiveBroker | None:
        """All brokers know of this one for another `TTL_MS`, and it knows of them. Returns who else
        had its node id until now, and lives."""
        if self._left:
            return None
        reply = await self._store.run(
            broker.register(
                self._keys,
                node_id=self.me.id,
                address=msgspec.json.encode(self.me),
                ttl_ms=TTL_MS,
            )
        )
        self.controller = reply.controller
        rows = [row for row in reply.brokers if isinstance(row, bytes)]
        found = [msgspec.json.decode(row, type=LiveBroker) for row in rows]
        self.nodes = sorted(found, key=lambda node: node.id)
        return msgspec.json.decode(reply.other, type=LiveBroker) if reply.other else None

    def leader_of(self, partition: int) -> int:
        """The broker that Metadata calls the leader of a partition: it spreads clients, no more."""
        return self.nodes[partition % len(self.nodes)].id

    async def leave(self) -> None:
        """This broker is no longer listed, unless other workers have its node id: they say so again
        when they hear of it."""
        self._left = True
        await self._store.run(
            broker.unregister(self._keys, node_id=self.me.id, address=msgspec.json.encode(self.me))
        )
