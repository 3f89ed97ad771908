"""The choice of a connection for a call: the only difference between deployments."""

from collections.abc import Sequence
from time import monotonic
from typing import Any

from korvet.scripts.call import Arg, Call
from korvet.store.address import Location
from korvet.store.connection import PendingCommand
from korvet.store.connections import ConnectionSet
from korvet.store.errors import REPLICA_CODES, code_of
from korvet.store.handshake import ConnectOptions, Server
from korvet.store.reconnect import ConnectionEvents, ReconnectingConnection
from korvet.store.sentinel_watch import SentinelWatcher

LEAVE_INTERVAL_S = 0.5
"""Seconds between two attempts to leave a replica.

The address may lead to it for a long time, and each attempt stops reads for some milliseconds.
"""


class SingleRouter:
    """A single server, or the master that Sentinels name."""

    is_cluster = False

    def __init__(
        self, location: Location, options: ConnectOptions, listener: ConnectionEvents
    ) -> None:
        self._watcher = SentinelWatcher(location, options, self.connections)
        self._connections = ConnectionSet(self._watcher.find, options, listener)
        self._left_at = -LEAVE_INTERVAL_S
        self.server: Server

    async def open(self) -> None:
        """Open every connection and read the server's properties."""
        for connection in self._connections.all:
            self.server = await connection.open()
        self._watcher.open()

    def for_call(self, call: Call[Any]) -> ReconnectingConnection:
        return self._connections.for_call(call)

    def for_command(self, command: Sequence[Arg]) -> ReconnectingConnection:
        return self._connections.reads

    def for_range(self, key: str) -> ReconnectingConnection:
        return self._connections.ranges

    def for_write(self, key: str) -> ReconnectingConnection:
        return self._connections.writes

    def connections(self) -> Sequence[ReconnectingConnection]:
        return self._connections.all

    def dropped(self, connection: ReconnectingConnection) -> None:
        """Nothing to do: the connection reconnects by itself."""

    def redirected(
        self, connection: ReconnectingConnection, pending_command: PendingCommand, message: str
    ) -> bool:
        """Return False: calls are never redirected.

        If the server has become a replica, all connections leave it, at most once per
        LEAVE_INTERVAL_S: a replica answers reads from old data.
        """
        now = monotonic()
        if code_of(message) in REPLICA_CODES and now - self._left_at >= LEAVE_INTERVAL_S:
            self._left_at = now
            for each in self._connections.all:
                each.renew("the server has become a replica")
        return False

    async def close(self) -> None:
        await self._watcher.close()
        for connection in self.connections():
            await connection.close()
