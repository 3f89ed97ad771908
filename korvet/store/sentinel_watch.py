"""Hearing from Sentinels that there is another master, or will be in a moment.

Rules
- A second before anybody knows of the new master it has been made one, and what the old one takes
  meanwhile is lost. The Sentinel that leads the failover tells when it begins: from then on there
  is no master, until one is named, the failover is given up, or HOLD_S have passed.
- A master that fails over need not be gone. It may take writes for many seconds, until Sentinels
  make it a replica, which then forgets them: it is left as soon as one Sentinel tells of the other.
- What was on its way to it then is unanswered: nobody knows what such an answer would be worth.
- A message only says that something happened: before a lane is left the Sentinels are asked, and
  again until every lane leads where they say, as one may just have been on its way to the other.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from korvet.store import sentinel
from korvet.store.address import Address, Location
from korvet.store.connection import PipelinedConnection
from korvet.store.errors import StoreError
from korvet.store.pubsub import PubSubConnection
from korvet.store.reconnect import ConnectOptions, Listener, ReconnectingConnection
from korvet.store.sentinel_lookup import finder

BEGINNING = "+failover-state-send-slaveof-noone"
EVENTS = (BEGINNING, "+promoted-slave", "+switch-master", "-failover-abort-slave-timeout")
"""All but the third come from the Sentinel that leads the failover alone."""
HOLD_S = sentinel.HOLD_S
AGAIN_S = 1.0

logger = logging.getLogger("korvet.store")


class SentinelWatcher(Listener):
    """Ears at all Sentinels of a location, and the way to its master. Without Sentinels there is
    nothing to hear."""

    def __init__(
        self,
        location: Location,
        manner: ConnectOptions,
        lanes: Callable[[], Sequence[ReconnectingConnection]],
    ) -> None:
        self._location = location
        self._manner = manner
        self._lanes = lanes
        self._looking: asyncio.Task[None] | None = None
        self._news = False
        self._find = finder(location, manner.connect_s)
        self._named = asyncio.Event()
        self._named.set()
        seeds = location.seeds if location.kind == "sentinel" else ()
        self._starting: list[asyncio.Task[None]] = []
        self._ears = [
            ReconnectingConnection(_way_to(location, seed), manner, self, PubSubConnection)
            for seed in seeds
        ]

    def open(self) -> None:
        """It listens to each Sentinel as soon as that one can be reached. Of whom that is not at
        once is in the log: who hears of no failover loses what the old master takes meanwhile."""
        self._starting = [asyncio.create_task(_listen(ear)) for ear in self._ears]

    async def close(self) -> None:
        """It listens no more."""
        for task in (*self._starting, self._looking):
            if task is not None:
                task.cancel()
        for ear in self._ears:
            await ear.close()

    async def find(self) -> Address:
        """Where to connect: the master, or whatever the location names."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLD_S):
                await self._named.wait()
        self._named.set()
        return await self._find()

    def opened(self, lane: ReconnectingConnection, link: PipelinedConnection) -> None:
        assert isinstance(link, PubSubConnection)
        link.hear(self._heard)
        link.say("SUBSCRIBE", *EVENTS)

    def _heard(self, message: list[Any]) -> None:
        """Something happened, or may have before this Sentinel was listened to."""
        if message[0] not in (b"message", b"subscribe"):
            return
        if message[0] == b"message" and _master_of(message) == self._location.master.encode():
            if message[1] == BEGINNING.encode():
                self._named.clear()
                for lane in self._lanes():
                    lane.leave("the Sentinels are making another server the master")
                return
            self._named.set()
        self._news = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """Every lane leads to the master."""
        while True:
            self._news = False
            try:
                named = await sentinel.master(self._location, self._manner.connect_s)
            except StoreError:
                named = None
            if named is not None and self._all_lead_to(named) and not self._news:
                return
            if not self._news:
                await asyncio.sleep(AGAIN_S)

    def _all_lead_to(self, place: Address) -> bool:
        """Whether they do. Those that lead elsewhere are left."""
        lanes = self._lanes()
        for lane in lanes:
            if lane.up and lane.place != place:
                lane.leave(f"the Sentinels call {place} the master")
        return all(lane.up and lane.place == place for lane in lanes)


async def _listen(ear: ReconnectingConnection) -> None:
    try:
        await ear.open()
    except StoreError as error:
        logger.warning("a Sentinel is not listened to: %s", error)
        ear.ensure_opening()


def _master_of(message: list[Any]) -> bytes:
    """Which of the masters that a Sentinel watches it tells about: `NAME HOST PORT HOST PORT` of a
    switch, else `master NAME HOST PORT` or `slave NAME HOST PORT @ MASTER HOST PORT`."""
    event, words = message[1], message[2].split(b" ")
    if event == b"+switch-master":
        return bytes(words[0])
    return b"".join(words[1:2] if words[0] == b"master" else words[5:6])


def _way_to(location: Location, seed: Address) -> Callable[[], Any]:
    entered = replace(
        seed, username=location.sentinel_username, password=location.sentinel_password, db=0
    )

    async def find() -> Address:
        return entered

    return find
