"""Waiting for a change without asking for it: messages on channels ring bells.

A waiter opens a bell, looks at the data, and waits only when there is nothing yet: whatever is
published after the bell was opened rings it, so nothing falls between looking and waiting.

    async with wake.listen(channels) as bell:
        while not enough(await look()):
            await bell.wait(timeout_s)

- `wait` says on which channels, so that a waiter looks at nothing else. Who has looked already
  tells `listen` how much was `heard` by then: channels with news since ring at once.
- A bell is a hint. It may ring for nothing, and while the connection is down it does not ring at
  all: look again when `wait` times out. After a reconnect every bell rings once, as soon as Redis
  listens for it again: who looked before that may have missed something.
- A channel nobody listens to any more stays subscribed for a while: the next fetch of a consumer
  costs no round trip.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from korvet.store.address import BadAddress, parse
from korvet.store.connection import PipelinedConnection
from korvet.store.errors import RedisUnreachable
from korvet.store.pubsub import PubSubConnection
from korvet.store.reconnect import ConnectOptions, Listener, ReconnectingConnection
from korvet.store.sentinel_watch import SentinelWatcher

Hear = Callable[[bytes], None]

LINGER_S = 30.0


class Subscription:
    """Rings when something is published on one of its channels; opened by `async with`."""

    __slots__ = ("_future", "_rung", "_wake", "channels", "since")

    def __init__(self, wake: "Notifier", channels: Sequence[str], since: int | None) -> None:
        self.channels = channels
        self.since = since
        self._wake = wake
        self._rung: set[str] = set()
        self._future: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        await self._wake.attach(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._wake.detach(self)

    def ring(self, *channels: str) -> None:
        """Whoever waits, or waits next, goes on: with these channels, or with all."""
        self._rung.update(channels or self.channels)
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout_s: float) -> set[str]:
        """The channels it rang for since it was opened or last waited for; none: the time is up."""
        if not self._rung and timeout_s > 0:
            loop = asyncio.get_running_loop()
            future = self._future = loop.create_future()
            handle = loop.call_later(timeout_s, _expire, future)
            try:
                await future
            finally:
                handle.cancel()
                self._future = None
        rung, self._rung = self._rung, set()
        return rung


def _expire(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Notifier(Listener):
    """Bells and watchers of one process, over one connection of its own."""

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._loop = asyncio.get_running_loop()
        self._lane: ReconnectingConnection
        self._follower: SentinelWatcher
        self._ear: PubSubConnection | None = None
        self._bells: dict[str, set[Subscription]] = {}
        self._watchers: dict[str, list[Hear]] = {}
        self._confirmed: set[str] = set()
        self._news: dict[str, int] = {}
        self.heard = 0
        """Grows with everything that is heard."""
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._idle: dict[str, float] = {}
        self._missed: set[str] = set()
        self._sweep_handle: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        client_name: str = "korvet-wake",
        connect_s: float = 5.0,
        timeout_s: float = 30.0,
        linger_s: float = LINGER_S,
    ) -> Self:
        """It listens; RedisUnreachable or RedisTooOld say what to do otherwise."""
        try:
            location = parse(url)
        except BadAddress as error:
            raise RedisUnreachable(str(error)) from error
        wake = cls(linger_s)
        manner = ConnectOptions(client_name, connect_s, timeout_s)
        wake._follower = SentinelWatcher(location, manner, lambda: [wake._lane])
        wake._lane = ReconnectingConnection(wake._follower.find, manner, wake, PubSubConnection)
        await wake._lane.open()
        wake._follower.open()
        wake._sweep_handle = wake._loop.call_later(linger_s, wake._sweep)
        return wake

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """The connection is gone; open bells ring no more."""
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
        await self._follower.close()
        await self._lane.close()

    @property
    def connected(self) -> bool:
        """Whether messages can arrive right now."""
        return self._lane.up

    def listen(self, channels: Iterable[str], since: int | None = None) -> Subscription:
        """A bell for these channels, to be opened by `async with`. With `since`, what `heard` was
        once, it rings at once for the channels that may have had news from then on."""
        return Subscription(self, tuple(channels), since)

    async def watch(self, channel: str, hear: Hear) -> None:
        """`hear(message)` is called for every message from now on, and with an empty message after
        a reconnect, when some may have been missed."""
        self._watchers.setdefault(channel, []).append(hear)
        await self._subscribe([channel])

    def ring(self, channel: str) -> None:
        """This process' bells of the channel ring, without Redis having been asked."""
        self.heard += 1
        if channel in self._confirmed:
            self._news[channel] = self.heard
        for bell in self._bells.get(channel, ()):
            bell.ring(channel)

    # What a bell calls.

    async def attach(self, bell: Subscription) -> None:
        """Everything published from now on rings the bell."""
        missing = []
        for channel in bell.channels:
            self._bells.setdefault(channel, set()).add(bell)
            self._idle.pop(channel, None)
            if channel not in self._confirmed:
                missing.append(channel)
        if missing:
            try:
                await self._subscribe(missing)
            except BaseException:
                self.detach(bell)
                raise
        if bell.since is not None:
            news, never = self._news, self.heard + 1  # not subscribed: nothing is known
            fresh = [name for name in bell.channels if news.get(name, never) > bell.since]
            if fresh or missing:
                bell.ring(*fresh, *missing)

    def detach(self, bell: Subscription) -> None:
        """Nothing rings the bell any more."""
        now = self._loop.time()
        for channel in bell.channels:
            bells = self._bells.get(channel)
            if bells is None:
                continue
            bells.discard(bell)
            if not bells:
                del self._bells[channel]
                self._idle[channel] = now

    # What the lane calls.

    def opened(self, lane: ReconnectingConnection, link: PipelinedConnection) -> None:
        assert isinstance(link, PubSubConnection)
        self._ear = link
        self._confirmed.clear()
        self._news.clear()
        self._idle.clear()
        link.hear(self._hear)
        channels = [*self._bells, *(self._watchers.keys() - self._bells.keys())]
        self._missed = set(channels)
        self._ask(channels)

    def dropped(self, lane: ReconnectingConnection) -> None:
        self._ear = None
        self._confirmed.clear()
        self._news.clear()
        for future in self._asked.values():
            if not future.done():
                future.set_result(None)
        self._asked.clear()

    # Inside.

    async def _subscribe(self, channels: Sequence[str]) -> None:
        """Redis has confirmed the channels, or there is no connection to do so."""
        if not self._lane.up:
            return
        self._ask([name for name in channels if name not in self._asked])
        waiting = [self._asked[name] for name in channels if name in self._asked]
        if waiting:
            await asyncio.wait(waiting, timeout=5.0)

    def _ask(self, channels: Sequence[str]) -> None:
        asked = [name for name in channels if name not in self._confirmed]
        if not asked or self._ear is None:
            return
        for name in asked:
            if name not in self._asked:
                self._asked[name] = self._loop.create_future()
        self._ear.say("SUBSCRIBE", *asked)

    def _hear(self, message: list[Any]) -> None:
        kind = message[0]
        if kind == b"message":
            channel = message[1].decode()
            self.ring(channel)
            for hear in self._watchers.get(channel, ()):
                hear(message[2])
        elif kind == b"subscribe":
            channel = message[1].decode()
            self._confirmed.add(channel)
            self.heard += 1
            self._news[channel] = self.heard
            future = self._asked.pop(channel, None)
            if future is not None and not future.done():
                future.set_result(None)
            if channel in self._missed:
                self._missed.discard(channel)
                self.ring(channel)
                for hear in self._watchers.get(channel, ()):
                    hear(b"")

    def _sweep(self) -> None:
        self._sweep_handle = self._loop.call_later(self._linger_s, self._sweep)
        before = self._loop.time() - self._linger_s
        # What Redis has not confirmed yet would be confirmed behind our back: it stays until then.
        tired = [
            name
            for name, since in self._idle.items()
            if since <= before and name not in self._asked
        ]
        for name in tired:
            del self._idle[name]
        gone = [name for name in tired if name not in self._watchers]
        self._confirmed.difference_update(gone)
        for name in gone:
            self._news.pop(name, None)
        if gone and self._ear is not None and self._lane.up:
            self._ear.say("UNSUBSCRIBE", *gone)
