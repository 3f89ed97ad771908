"""Which connection takes a call: the one question that differs between deployments."""

from collections.abc import Sequence
from time import monotonic
from typing import Any, Protocol

from korvet.scripts.call import Arg, Call
from korvet.store.address import Location
from korvet.store.connection import PendingCommand
from korvet.store.connections import ConnectionSet
from korvet.store.errors import A_REPLICA, code_of
from korvet.store.reconnect import ConnectOptions, Listener, ReconnectingConnection, Server
from korvet.store.sentinel_watch import SentinelWatcher

LEFT_FOR_S = 0.5
"""How soon a replica is left again: the address may lead to it for long, and who leaves a server
answers no read for some milliseconds."""


class Router(Protocol):
    """Finds the lane for a call or a command."""

    is_cluster: bool
    server: Server

    def for_call(self, call: Call[Any]) -> ReconnectingConnection: ...

    def for_command(self, command: Sequence[Arg]) -> ReconnectingConnection: ...

    def for_write(self, key: str) -> ReconnectingConnection: ...

    def lanes(self) -> Sequence[ReconnectingConnection]: ...

    def dropped(self, lane: ReconnectingConnection) -> None: ...

    def redirected(
        self, lane: ReconnectingConnection, ticket: PendingCommand, message: str
    ) -> bool: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class SingleRouter:
    """One server, or the master that Sentinels name."""

    is_cluster = False

    def __init__(self, location: Location, manner: ConnectOptions, listener: Listener) -> None:
        self._follower = SentinelWatcher(location, manner, self.lanes)
        self._lanes = ConnectionSet(self._follower.find, manner, listener)
        self._left_at = -LEFT_FOR_S
        self.server: Server

    async def open(self) -> None:
        """Every lane is open and `server` is known."""
        for lane in self._lanes.all:
            self.server = await lane.open()
        self._follower.open()

    def for_call(self, call: Call[Any]) -> ReconnectingConnection:
        return self._lanes.for_call(call)

    def for_command(self, command: Sequence[Arg]) -> ReconnectingConnection:
        return self._lanes.reads

    def for_write(self, key: str) -> ReconnectingConnection:
        return self._lanes.writes

    def lanes(self) -> Sequence[ReconnectingConnection]:
        return self._lanes.all

    def dropped(self, lane: ReconnectingConnection) -> None:
        """Nothing to do: the lane comes back by itself."""

    def redirected(
        self, lane: ReconnectingConnection, ticket: PendingCommand, message: str
    ) -> bool:
        """Never taken over. All lanes leave a server that has become a replica, now and then while
        they find no other: it would refuse no read, and answer with what it knows."""
        now = monotonic()
        if code_of(message) in A_REPLICA and now - self._left_at >= LEFT_FOR_S:
            self._left_at = now
            for each in self._lanes.all:
                each.renew("the server has become a replica")
        return False

    async def close(self) -> None:
        await self._follower.close()
        for lane in self.lanes():
            await lane.close()
