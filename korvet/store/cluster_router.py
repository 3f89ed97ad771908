"""A Redis Cluster: connections to every master, and a map from slots to masters.

- A call goes to the master of its first key's slot. Calls and commands without keys go to any
  master that is up.
- MOVED: the router corrects the map, sends the call to the right node and reads the whole map
  again. ASK: the router sends the call there once, after ASKING and by EVAL, because ASKING covers
  one command only. Redis executed nothing in either case, so nothing can happen twice.
- When a connection breaks, the router reads the map until it can: this is how it sees a failover.
- A master without replies for some time may have been replaced: the router asks another node for
  the map. If it was replaced, its unanswered calls fail: a stopped master that resumes acknowledges
  writes that are then lost.
- Calls of one connection and slot keep their order, except for redirected calls.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from korvet.scripts.call import Arg, Call
from korvet.store.address import Address, Location
from korvet.store.connection import PendingCommand
from korvet.store.errors import (
    REPLICA_CODES,
    RedisUnreachable,
    StoreError,
    StoreUnavailable,
    code_of,
)
from korvet.store.handshake import ConnectOptions, Server
from korvet.store.reconnect import ConnectionEvents, ConnectionSet, ReconnectingConnection
from korvet.store.sentinel import always
from korvet.store.slots import (
    SLOTS,
    parse_redirect,
    parse_slots,
    slot_of_call,
    slot_of_command,
    slot_of_key,
)

_MAX_REDIRECTIONS = 5
"""Redirections of one call after which it fails: two nodes disagree about the slot."""
_REFRESH_S = 0.25
"""Seconds between two reads of the map while a master is not connected."""
_SILENT_S = 1.0
"""Seconds without a reply after which the router asks another node for the map."""


class ClusterNode(ConnectionSet):
    """A master and the connections to it."""

    def __init__(
        self, address: Address, options: ConnectOptions, listener: ConnectionEvents
    ) -> None:
        super().__init__(always(address), options, listener)
        self.address = address


class ClusterRouter:
    """Finds the connection for a call by its slot."""

    is_cluster = True

    def __init__(
        self, location: Location, options: ConnectOptions, listener: ConnectionEvents
    ) -> None:
        self._seeds = location.seeds
        self._options = options
        self._listener = listener
        self._nodes: dict[tuple[str, int], ClusterNode] = {}
        self._slots: list[ClusterNode | None] = [None] * SLOTS
        self._refreshing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._silent: set[ClusterNode] = set()
        self._closed = False
        self._delayed_sends: set[asyncio.Task[None]] = set()
        self.server: Server

    async def open(self) -> None:
        """Read the map and connect to every master in it."""
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
            for connection in node.all:
                await connection.open()
        await self._forget(set(self._nodes.values()) - known)
        self._watching = asyncio.create_task(self._keep_watching())

    def for_call(self, call: Call[Any]) -> ReconnectingConnection:
        return self._node_of(slot_of_call(call)).for_call(call)

    def for_command(self, command: Sequence[Arg]) -> ReconnectingConnection:
        return self._node_of(slot_of_command(command)).reads

    def for_range(self, key: str) -> ReconnectingConnection:
        return self._node_of(slot_of_key(key)).ranges

    def for_write(self, key: str) -> ReconnectingConnection:
        return self._node_of(slot_of_key(key)).writes

    def connections(self) -> Sequence[ReconnectingConnection]:
        return [connection for node in self._nodes.values() for connection in node.all]

    async def close(self) -> None:
        self._closed = True
        for task in (*self._delayed_sends, self._refreshing, self._watching):
            if task is not None:
                task.cancel()
        for connection in self.connections():
            await connection.close()

    def dropped(self, connection: ReconnectingConnection) -> None:
        """Read the map again: a replica may have become master."""
        self._refresh()

    def redirected(
        self, connection: ReconnectingConnection, pending_command: PendingCommand, message: str
    ) -> bool:
        """Send a redirected command to its node; return False if it cannot be redirected."""
        asked = next((n.address.host for n in self._nodes.values() if connection in n.all), "")
        target = parse_redirect(message, asked)
        if target is None:
            if code_of(message) in ("CLUSTERDOWN", *REPLICA_CODES):
                self._refresh()
            return False
        pending_command.moves += 1
        if pending_command.moves > _MAX_REDIRECTIONS:
            return False
        node = self._node(target.host, target.port)
        if not target.asking:
            self._slots[target.slot] = node
            self._refresh()
        connection = (
            node.for_call(pending_command.call) if pending_command.call is not None else node.reads
        )
        self._send_to(connection, pending_command, target.asking)
        return True

    # Implementation.

    def _send_to(
        self, connection: ReconnectingConnection, pending_command: PendingCommand, asking: bool
    ) -> None:
        if not connection.up:
            task = asyncio.create_task(self._send_later(connection, pending_command, asking))
            self._delayed_sends.add(task)
            task.add_done_callback(self._delayed_sends.discard)
            return
        if asking:
            pending_command.tries = 1
            connection.pipeline.send(PendingCommand(None, command=("ASKING",)))
        connection.pipeline.send(pending_command)

    async def _send_later(
        self, connection: ReconnectingConnection, pending_command: PendingCommand, asking: bool
    ) -> None:
        try:
            await connection.open()
        except StoreError as error:
            pending_command.fail(StoreUnavailable(f"redirected, but {error}"))
        else:
            self._send_to(connection, pending_command, asking)

    def _node(self, host: str, port: int) -> ClusterNode:
        node = self._nodes.get((host, port))
        if node is None:
            node = ClusterNode(self._seeds[0].at(host, port), self._options, self._listener)
            self._nodes[host, port] = node
        return node

    def _node_of(self, slot: int | None) -> ClusterNode:
        node = self._slots[slot] if slot is not None else None
        if node is not None:
            return node
        nodes = list(self._nodes.values())
        return next((node for node in nodes if node.reads.up), nodes[0])

    async def _read_map(self, node: ClusterNode) -> None:
        """Read the map from this node."""
        future = asyncio.get_running_loop().create_future()
        node.reads.pipeline.send(PendingCommand(future, command=("CLUSTER", "SLOTS")))
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
        """Read the map until every master in it is connected; close connections to other nodes."""
        while True:
            await self._read_from_any()
            known = {node for node in self._slots if node is not None}
            for node in known:
                for connection in node.all:
                    connection.ensure_opening()
            if all(connection.up for node in known for connection in node.all):
                await self._forget(set(self._nodes.values()) - known)
                self._listener.progressed()
                return
            await asyncio.sleep(_REFRESH_S)

    async def _keep_watching(self) -> None:
        """Leave masters that do not answer once other nodes name another master."""
        before: dict[ReconnectingConnection, PendingCommand | None] = {}
        while True:
            await asyncio.sleep(_SILENT_S)
            now = {connection: connection.oldest for connection in self.connections()}
            same = {
                connection
                for connection, pending_command in now.items()
                if pending_command and before.get(connection) is pending_command
            }
            self._silent = {node for node in self._nodes.values() if not same.isdisjoint(node.all)}
            before = now
            if self._silent:
                await self._read_from_any()
                for node in self._silent.difference(self._slots):
                    for connection in node.all:
                        connection.leave("another node has become the master")
                self._refresh()  # other masters may have failed over too

    async def _read_from_any(self) -> None:
        for node in sorted(self._nodes.values(), key=self._silent.__contains__):
            if node.reads.up:
                try:
                    async with asyncio.timeout(self._options.connect_s):
                        await self._read_map(node)
                except (StoreError, TimeoutError):
                    continue
                return
        for seed in self._seeds:
            self._node(seed.host, seed.port).reads.ensure_opening()

    async def _forget(self, nodes: set[ClusterNode]) -> None:
        for node in nodes:
            self._nodes.pop((node.address.host, node.address.port), None)
            for connection in node.all:
                await connection.close()
