"""A Redis Cluster: lanes to every master, and a map from slots to masters.

- A call goes to the master of its first key's slot. Calls without keys, and commands without, go
  to any master that is up.
- MOVED: the map is corrected, the call goes to the right node, and the whole map is read again.
  ASK: the call goes there once, right behind ASKING and by EVAL, because ASKING holds for one
  command only. Redis did nothing in either case, so nothing can happen twice.
- When a connection breaks the map is read again until it can be: that is how a failover is seen.
- A master that has answered nothing for a while may stand still, and have been replaced: the map is
  asked of another. If it has been, what it has not answered fails: should it go on, it would take
  writes for a moment that are lost, and tell of them.
- Order holds for the calls of one lane and slot as it does on one server, except for calls that
  are redirected.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from korvet.scripts.call import Arg, Call
from korvet.store.address import Address, Location
from korvet.store.connection import PendingCommand
from korvet.store.connections import ConnectionSet
from korvet.store.errors import (
    A_REPLICA,
    RedisUnreachable,
    StoreError,
    StoreUnavailable,
    code_of,
)
from korvet.store.reconnect import ConnectOptions, Listener, ReconnectingConnection, Server
from korvet.store.slots import (
    SLOTS,
    parse_redirect,
    parse_slots,
    slot_of_call,
    slot_of_command,
    slot_of_key,
)

# A call that is sent from node to node so often is caught in a quarrel about its slot.
_MOST_MOVES = 5
_REFRESH_S = 0.25
_SILENT_S = 1.0


class ClusterNode(ConnectionSet):
    """One master and the lanes to it."""

    def __init__(self, address: Address, manner: ConnectOptions, listener: Listener) -> None:
        async def find() -> Address:
            return address

        super().__init__(find, manner, listener)
        self.address = address


class ClusterRouter:
    """Finds the lane for a call by its slot."""

    is_cluster = True

    def __init__(self, location: Location, manner: ConnectOptions, listener: Listener) -> None:
        self._seeds = location.seeds
        self._manner = manner
        self._listener = listener
        self._nodes: dict[tuple[str, int], ClusterNode] = {}
        self._slots: list[ClusterNode | None] = [None] * SLOTS
        self._refreshing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._silent: set[ClusterNode] = set()
        self._closed = False
        self._strays: set[asyncio.Task[None]] = set()
        self.server: Server

    async def open(self) -> None:
        """The map is read and every master of it is connected."""
        failure: StoreError = RedisUnreachable("the cluster URL names no node")
        for seed in self._seeds:
            node = self._node(seed.host, seed.port)
            try:
                self.server = await node.reads.open()
                await self._read_map(node)
            except StoreError as error:
                failure = error
                continue
            break
        else:
            raise failure
        known = {node for node in self._slots if node is not None}
        for node in known:
            for lane in node.all:
                await lane.open()
        await self._forget(set(self._nodes.values()) - known)
        self._watching = asyncio.create_task(self._keep_watching())

    def for_call(self, call: Call[Any]) -> ReconnectingConnection:
        return self._node_of(slot_of_call(call)).for_call(call)

    def for_command(self, command: Sequence[Arg]) -> ReconnectingConnection:
        return self._node_of(slot_of_command(command)).reads

    def for_write(self, key: str) -> ReconnectingConnection:
        return self._node_of(slot_of_key(key)).writes

    def lanes(self) -> Sequence[ReconnectingConnection]:
        return [lane for node in self._nodes.values() for lane in node.all]

    async def close(self) -> None:
        self._closed = True
        for task in (*self._strays, self._refreshing, self._watching):
            if task is not None:
                task.cancel()
        for lane in self.lanes():
            await lane.close()

    def dropped(self, lane: ReconnectingConnection) -> None:
        """A connection broke: a replica may have become master."""
        self._refresh()

    def redirected(
        self, lane: ReconnectingConnection, ticket: PendingCommand, message: str
    ) -> bool:
        """Redis says that the ticket belongs elsewhere; True when it is on its way there."""
        asked = next((n.address.host for n in self._nodes.values() if lane in n.all), "")
        target = parse_redirect(message, asked)
        if target is None:
            if code_of(message) in ("CLUSTERDOWN", *A_REPLICA):
                self._refresh()
            return False
        ticket.moves += 1
        if ticket.moves > _MOST_MOVES:
            return False
        node = self._node(target.host, target.port)
        if not target.asking:
            self._slots[target.slot] = node
            self._refresh()
        lane = node.for_call(ticket.call) if ticket.call is not None else node.reads
        self._send_to(lane, ticket, target.asking)
        return True

    # Inside.

    def _send_to(self, lane: ReconnectingConnection, ticket: PendingCommand, asking: bool) -> None:
        if not lane.up:
            task = asyncio.create_task(self._send_later(lane, ticket, asking))
            self._strays.add(task)
            task.add_done_callback(self._strays.discard)
            return
        if asking:
            ticket.tries = 1
            lane.link.send(PendingCommand(None, command=("ASKING",)))
        lane.link.send(ticket)

    async def _send_later(
        self, lane: ReconnectingConnection, ticket: PendingCommand, asking: bool
    ) -> None:
        try:
            await lane.open()
        except StoreError as error:
            ticket.fail(StoreUnavailable(f"redirected, but {error}"))
        else:
            self._send_to(lane, ticket, asking)

    def _node(self, host: str, port: int) -> ClusterNode:
        node = self._nodes.get((host, port))
        if node is None:
            node = ClusterNode(self._seeds[0].at(host, port), self._manner, self._listener)
            self._nodes[host, port] = node
        return node

    def _node_of(self, slot: int | None) -> ClusterNode:
        node = self._slots[slot] if slot is not None else None
        if node is not None:
            return node
        nodes = list(self._nodes.values())
        return next((node for node in nodes if node.reads.up), nodes[0])

    async def _read_map(self, node: ClusterNode) -> None:
        """The map is as this node knows it."""
        future = asyncio.get_running_loop().create_future()
        node.reads.link.send(PendingCommand(future, command=("CLUSTER", "SLOTS")))
        rows = parse_slots(await future, node.address.host)
        slots: list[ClusterNode | None] = [None] * SLOTS
        for first, last, host, port in rows:
            slots[first : last + 1] = [self._node(host, port)] * (last + 1 - first)
        if not rows:
            raise RedisUnreachable(
                f"the cluster at {node.address} has no slots assigned: create it first"
            )
        self._slots = slots

    def _refresh(self) -> None:
        if not self._closed and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.create_task(self._keep_refreshing())

    async def _keep_refreshing(self) -> None:
        """The map is read until every master in it is connected; nodes outside it are let go."""
        while True:
            await self._read_from_any()
            known = {node for node in self._slots if node is not None}
            for node in known:
                for lane in node.all:
                    lane.ensure_opening()
            if all(lane.up for node in known for lane in node.all):
                await self._forget(set(self._nodes.values()) - known)
                self._listener.progressed()
                return
            await asyncio.sleep(_REFRESH_S)

    async def _keep_watching(self) -> None:
        """Masters that stand still are left once others call another one the master."""
        before: dict[ReconnectingConnection, PendingCommand | None] = {}
        while True:
            await asyncio.sleep(_SILENT_S)
            now = {lane: lane.oldest for lane in self.lanes()}
            same = {lane for lane, ticket in now.items() if ticket and before.get(lane) is ticket}
            self._silent = {node for node in self._nodes.values() if not same.isdisjoint(node.all)}
            before = now
            if self._silent:
                await self._read_from_any()
                for node in self._silent.difference(self._slots):
                    for lane in node.all:
                        lane.leave("another node has become the master")
                self._refresh()  # others may have new masters as well, which nobody calls yet

    async def _read_from_any(self) -> None:
        for node in sorted(self._nodes.values(), key=self._silent.__contains__):
            if node.reads.up:
                try:
                    async with asyncio.timeout(self._manner.connect_s):
                        await self._read_map(node)
                except (StoreError, TimeoutError):
                    continue
                return
        for seed in self._seeds:
            self._node(seed.host, seed.port).reads.ensure_opening()

    async def _forget(self, nodes: set[ClusterNode]) -> None:
        for node in nodes:
            self._nodes.pop((node.address.host, node.address.port), None)
            for lane in node.all:
                await lane.close()
