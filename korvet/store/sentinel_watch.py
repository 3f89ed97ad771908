"""Watch the Sentinels for a new master.

Rules
- Sentinel promotes a replica about 1 s before +switch-master; writes to the old master in that
  window are lost. The Sentinel that leads the failover publishes its start. From then on there is
  no master until one is named, the failover is given up, or HOLD_S have passed.
- An old master need not be down. It may take writes for many seconds until Sentinels make it a
  replica, which then drops them: the store leaves it as soon as one Sentinel names another master.
- Commands in flight to the old master fail: their replies would prove nothing.
- A message is a hint: before it leaves a connection, the watcher asks the Sentinels, and again
  until every connection leads to the server they name.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from korvet.store import sentinel
from korvet.store.address import Address, Location
from korvet.store.connection import PipelinedConnection, PubSubConnection
from korvet.store.errors import StoreError
from korvet.store.handshake import ConnectOptions
from korvet.store.reconnect import ConnectionEvents, ReconnectingConnection
from korvet.store.sentinel import Find, always, finder

BEGINNING = "+failover-state-send-slaveof-noone"
EVENTS = (BEGINNING, "+promoted-slave", "+switch-master", "-failover-abort-slave-timeout")
"""All but the third are published only by the Sentinel that leads the failover."""
HOLD_S = sentinel.HOLD_S
AGAIN_S = 1.0

logger = logging.getLogger("korvet.store")


class SentinelWatcher(ConnectionEvents):
    """Subscriptions to all Sentinels of a location, and the address of its master.

    Without Sentinels it does nothing.
    """

    def __init__(
        self,
        location: Location,
        options: ConnectOptions,
        connections: Callable[[], Sequence[ReconnectingConnection]],
    ) -> None:
        self._location = location
        self._options = options
        self._connections = connections
        self._checking: asyncio.Task[None] | None = None
        self._has_news = False
        self._find = finder(location, options.connect_s)
        self._named = asyncio.Event()
        self._named.set()
        seeds = location.seeds if location.kind == "sentinel" else ()
        self._starting: list[asyncio.Task[None]] = []
        self._pubsubs = [
            ReconnectingConnection(_find_sentinel(location, seed), options, self, PubSubConnection)
            for seed in seeds
        ]

    def open(self) -> None:
        """Subscribe to each Sentinel as soon as it can be reached.

        A Sentinel that cannot be reached is logged: without its messages, writes during a failover
        are lost.
        """
        self._starting = [asyncio.create_task(_listen(pubsub)) for pubsub in self._pubsubs]

    async def close(self) -> None:
        """Unsubscribe."""
        tasks = [task for task in (*self._starting, self._checking) if task is not None]
        for task in tasks:
            task.cancel()
        # A task that connects closes its socket when it ends.
        await asyncio.gather(*tasks, return_exceptions=True)
        for pubsub in self._pubsubs:
            await pubsub.close()

    async def find(self) -> Address:
        """Return the address to connect to: the master, or the location's only server."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLD_S):
                await self._named.wait()
        self._named.set()
        return await self._find()

    def opened(self, connection: ReconnectingConnection, pipeline: PipelinedConnection) -> None:
        assert isinstance(pipeline, PubSubConnection)
        pipeline.on_message(self._on_message)
        pipeline.say("SUBSCRIBE", *EVENTS)

    def _on_message(self, message: list[Any]) -> None:
        """Handle a message, or the start of a subscription: an event may have been missed."""
        if message[0] not in (b"message", b"subscribe"):
            return
        if message[0] == b"message" and _master_of(message) == self._location.master.encode():
            if message[1] == BEGINNING.encode():
                self._named.clear()
                for connection in self._connections():
                    connection.leave("the Sentinels are making another server the master")
                return
            self._named.set()
        self._has_news = True
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())

    async def _check(self) -> None:
        """Check until every connection leads to the master."""
        while True:
            self._has_news = False
            try:
                named = await sentinel.master(self._location, self._options.connect_s)
            except StoreError:
                named = None
            if named is not None and self._all_lead_to(named) and not self._has_news:
                return
            if not self._has_news:
                await asyncio.sleep(AGAIN_S)

    def _all_lead_to(self, master: Address) -> bool:
        """Leave connections that lead to another server; return whether there were none."""
        connections = self._connections()
        for connection in connections:
            if connection.up and connection.address != master:
                connection.leave(f"the Sentinels name {master} as master")
        return all(connection.up and connection.address == master for connection in connections)


async def _listen(pubsub: ReconnectingConnection) -> None:
    try:
        await pubsub.open()
    except StoreError as error:
        logger.warning("Sentinel subscription failed: %s", error)
        pubsub.ensure_opening()


def _master_of(message: list[Any]) -> bytes:
    """Return the name of the master that an event is about.

    The payload is `NAME HOST PORT HOST PORT` for a switch, else `master NAME HOST PORT` or `slave
    NAME HOST PORT @ MASTER HOST PORT`.
    """
    event, words = message[1], message[2].split(b" ")
    if event == b"+switch-master":
        return bytes(words[0])
    return b"".join(words[1:2] if words[0] == b"master" else words[5:6])


def _find_sentinel(location: Location, seed: Address) -> Find:
    username, password = location.sentinel_username, location.sentinel_password
    return always(replace(seed, username=username, password=password, db=0))
