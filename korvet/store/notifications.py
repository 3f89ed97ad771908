"""Pub/sub notifications for long polls (Fetch, JoinGroup, SyncGroup).

A waiter subscribes, checks the data, and waits only if there is none yet. Whatever is published
after the subscription ends the wait, so no change is missed between check and wait.

async with notifier.listen(channels) as subscription:
    while not enough(await check()):
        await subscription.wait(timeout_s)

- `wait` returns the channels with news, so that a waiter checks nothing else. A waiter that has
  checked already passes `listen` the `message_count` of that time: channels with news since then
  notify at once.
- A notification is a hint. It may come without a change, and none comes while the connection is
  down: check again when `wait` times out. After a reconnect every subscription is notified once, as
  soon as Redis has confirmed it: a message may have been missed.
- A channel without subscriptions stays subscribed for some time: the next fetch of a consumer then
  costs no round trip.
- A `Watch` lasts longer than one wait, and has many channels. A channel with news leaves it: `add`
  it again before you check what is published there.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Self

from korvet.store.address import parse
from korvet.store.calls import resolve
from korvet.store.connection import PipelinedConnection, PubSubConnection
from korvet.store.handshake import ConnectOptions
from korvet.store.reconnect import ConnectionEvents, ReconnectingConnection
from korvet.store.sentinel_watch import SentinelWatcher

OnMessage = Callable[[bytes], None]

LINGER_S = 30.0
"""Seconds for which a channel without subscriptions stays subscribed."""


class Subscription:
    """Notified when a message is published on one of its channels; opened by `async with`."""

    __slots__ = ("_changed", "_future", "_notifier", "channels", "since")

    def __init__(self, notifier: "Notifier", channels: Sequence[str], since: int | None) -> None:
        self.channels = channels
        self.since = since
        self._notifier = notifier
        self._changed: set[str] = set()
        self._future: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        await self._notifier.attach(self, self.channels)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._notifier.detach(self, self.channels)

    def notify(self, *channels: str) -> None:
        """Wake the current or the next wait, for these channels or for all."""
        self._changed.update(channels or self.channels)
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout_s: float) -> set[str]:
        """Return the channels with news since the last wait; empty on timeout."""
        if not self._changed and timeout_s > 0:
            loop = asyncio.get_running_loop()
            future = self._future = loop.create_future()
            handle = loop.call_later(timeout_s, resolve, future, None)
            try:
                await future
            finally:
                handle.cancel()
                self._future = None
        return self.take()

    def take(self) -> set[str]:
        """Return the channels with news since the last wait."""
        changed, self._changed = self._changed, set()
        return changed


class Watch(Subscription):
    """Notified once for each channel that was added to it, also between two waits."""

    __slots__ = ()

    async def add(self, channels: Collection[str]) -> None:
        """Notify for these channels too, of everything published from now on."""
        await self._notifier.attach(self, channels)

    def remove(self, channels: Iterable[str]) -> None:
        """Do not notify for these channels."""
        self._notifier.detach(self, channels)

    def notify(self, *channels: str) -> None:
        super().notify(*channels)
        self.remove(channels)


class Notifier(ConnectionEvents):
    """Subscriptions and watchers of one process, over one connection."""

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._loop = asyncio.get_running_loop()
        self._connection: ReconnectingConnection
        self._watcher: SentinelWatcher
        self._pubsub: PubSubConnection | None = None
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._watchers: dict[str, list[OnMessage]] = {}
        self._confirmed: set[str] = set()
        self._news: dict[str, int] = {}
        self.message_count = 0
        """Incremented with every message."""
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._idle: dict[str, float] = {}
        self._missed: set[str] = set()
        self._sweep_handle: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        client_name: str = "korvet-pubsub",
        connect_s: float = 5.0,
        timeout_s: float = 30.0,
        linger_s: float = LINGER_S,
    ) -> Self:
        """Connect and listen. Raises RedisUnreachable or RedisTooOld."""
        notifier = cls(linger_s)
        options = ConnectOptions(client_name, connect_s, timeout_s)
        watcher = SentinelWatcher(parse(url), options, lambda: [notifier._connection])
        notifier._watcher = watcher
        notifier._connection = ReconnectingConnection(
            watcher.find, options, notifier, PubSubConnection
        )
        await notifier._connection.open()
        watcher.open()
        notifier._sweep_handle = notifier._loop.call_later(linger_s, notifier._sweep)
        return notifier

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; open subscriptions get no more notifications."""
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
        await self._watcher.close()
        await self._connection.close()

    @property
    def connected(self) -> bool:
        """Return whether messages can arrive right now."""
        return self._connection.up

    def listen(self, channels: Iterable[str], since: int | None = None) -> Subscription:
        """Return a subscription to these channels, to be opened by `async with`.

        With `since`, an earlier `message_count`, it notifies at once for channels that may have
        had news from then on.
        """
        return Subscription(self, tuple(channels), since)

    def watch_each(self) -> Watch:
        """Return a subscription to channels that are added to it one by one."""
        return Watch(self, (), None)

    async def watch(self, channel: str, on_message: OnMessage) -> None:
        """Call `on_message(message)` for every message from now on.

        After a reconnect it is called with an empty message: some may have been missed.
        """
        self._watchers.setdefault(channel, []).append(on_message)
        await self._subscribe([channel])

    def notify(self, channel: str) -> None:
        """Notify this process's subscriptions of the channel without a message from Redis."""
        self.message_count += 1
        if channel in self._confirmed:
            self._news[channel] = self.message_count
        for subscription in tuple(self._subscriptions.get(channel, ())):
            subscription.notify(channel)

    # Called by subscriptions.

    async def attach(self, subscription: Subscription, channels: Collection[str]) -> None:
        """Notify the subscription of everything published on the channels from now on."""
        missing = []
        for channel in channels:
            self._subscriptions.setdefault(channel, set()).add(subscription)
            self._idle.pop(channel, None)
            if channel not in self._confirmed:
                missing.append(channel)
        if missing:
            try:
                await self._subscribe(missing)
            except BaseException:
                self.detach(subscription, channels)
                raise
        if subscription.since is not None:
            # Changes on a channel that was not subscribed until now are unknown.
            news, unknown = self._news, self.message_count + 1
            changed = [
                name
                for name in subscription.channels
                if news.get(name, unknown) > subscription.since
            ]
            if changed or missing:
                subscription.notify(*changed, *missing)

    def detach(self, subscription: Subscription, channels: Iterable[str]) -> None:
        """Stop notifying the subscription of the channels."""
        now = self._loop.time()
        for channel in channels:
            subscriptions = self._subscriptions.get(channel)
            if subscriptions is None:
                continue
            subscriptions.discard(subscription)
            if not subscriptions:
                del self._subscriptions[channel]
                self._idle[channel] = now

    # Called by the connection.

    def opened(self, connection: ReconnectingConnection, pipeline: PipelinedConnection) -> None:
        assert isinstance(pipeline, PubSubConnection)
        self._pubsub = pipeline
        self._confirmed.clear()
        self._news.clear()
        self._idle.clear()
        pipeline.on_message(self._on_message)
        channels = [*self._subscriptions, *(self._watchers.keys() - self._subscriptions.keys())]
        self._missed = set(channels)
        self._ask(channels)

    def dropped(self, connection: ReconnectingConnection) -> None:
        self._pubsub = None
        self._confirmed.clear()
        self._news.clear()
        for future in self._asked.values():
            resolve(future, None)
        self._asked.clear()

    # Implementation.

    async def _subscribe(self, channels: Sequence[str]) -> None:
        """Wait until Redis has confirmed the channels, or there is no connection."""
        if not self._connection.up:
            return
        self._ask([name for name in channels if name not in self._asked])
        waiting = [self._asked[name] for name in channels if name in self._asked]
        if waiting:
            await asyncio.wait(waiting, timeout=5.0)

    def _ask(self, channels: Sequence[str]) -> None:
        asked = [name for name in channels if name not in self._confirmed]
        if not asked or self._pubsub is None:
            return
        for name in asked:
            if name not in self._asked:
                self._asked[name] = self._loop.create_future()
        self._pubsub.say("SUBSCRIBE", *asked)

    def _on_message(self, message: list[Any]) -> None:
        kind = message[0]
        if kind == b"message":
            channel = message[1].decode()
            self.notify(channel)
            for on_message in self._watchers.get(channel, ()):
                on_message(message[2])
        elif kind == b"subscribe":
            channel = message[1].decode()
            self._confirmed.add(channel)
            self.message_count += 1
            self._news[channel] = self.message_count
            future = self._asked.pop(channel, None)
            if future is not None:
                resolve(future, None)
            if channel in self._missed:
                self._missed.discard(channel)
                self.notify(channel)
                for on_message in self._watchers.get(channel, ()):
                    on_message(b"")

    def _sweep(self) -> None:
        self._sweep_handle = self._loop.call_later(self._linger_s, self._sweep)
        before = self._loop.time() - self._linger_s
        # An unconfirmed channel stays: its late confirmation would be taken for another's.
        expired = [
            name
            for name, since in self._idle.items()
            if since <= before and name not in self._asked
        ]
        for name in expired:
            del self._idle[name]
        gone = [name for name in expired if name not in self._watchers]
        self._confirmed.difference_update(gone)
        for name in gone:
            self._news.pop(name, None)
        if gone and self._pubsub is not None and self._connection.up:
            self._pubsub.say("UNSUBSCRIBE", *gone)
