"""A connection that comes back: opens a link, greets the server, opens the next when one breaks.

While there is none, tickets fail at once. It returns by itself: the first attempt at once, the
next after pauses that double up to two seconds.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from korvet.scripts.call import Arg
from korvet.store.address import Address
from korvet.store.connection import PendingCommand, PipelinedConnection
from korvet.store.errors import (
    CommandFailed,
    RedisTooOld,
    RedisUnreachable,
    StoreError,
    StoreRefused,
)

OLDEST = (6, 2)
_PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0)


@dataclass(frozen=True)
class Server:
    """What a server said about itself when it was greeted."""

    name: str
    version: str
    cluster: bool
    info: dict[str, str]


@dataclass(frozen=True)
class ConnectOptions:
    """How connections are made."""

    client_name: str = "korvet"
    connect_s: float = 5.0
    timeout_s: float = 30.0


class Listener:
    """What a lane tells its store; the store overrides what it wants to hear."""

    def settled(self, ticket: PendingCommand, outcome: str) -> None:
        """A ticket with a start time was answered."""

    def redirected(
        self, lane: "ReconnectingConnection", ticket: PendingCommand, message: str
    ) -> bool:
        """Redis refused the ticket; True when it was taken over."""
        return False

    def progressed(self) -> None:
        """Some replies have arrived."""

    def opened(self, lane: "ReconnectingConnection", link: PipelinedConnection) -> None:
        """The lane has a link to a server that was greeted."""

    def dropped(self, lane: "ReconnectingConnection") -> None:
        """The lane has lost its link."""


class Disconnected:
    """Stands in for a link while there is none: every ticket fails at once."""

    pending_bytes = 0
    bursts = 0

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def send(self, ticket: PendingCommand) -> None:
        """The ticket has failed; nothing was sent."""
        ticket.fail(RedisUnreachable(f"there is no connection to Redis: {self.reason}"))


class ReconnectingConnection:
    """One connection to the place that `find` names. `link` takes tickets at any time."""

    def __init__(
        self,
        find: Callable[[], Awaitable[Address]],
        manner: ConnectOptions,
        listener: Listener,
        link_type: type[PipelinedConnection] = PipelinedConnection,
    ) -> None:
        self.link: PipelinedConnection | Disconnected = Disconnected("it was never opened")
        self.reconnects = 0
        self.place = Address()
        """Where the newest link leads."""
        self._find = find
        self._manner = manner
        self._listener = listener
        self._link_type = link_type
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._bursts = 0
        self._opening = asyncio.Lock()
        self._server: Server | None = None

    @property
    def bursts(self) -> int:
        """How many writes have gone out, all links of the past included."""
        return self._bursts + self.link.bursts

    @property
    def up(self) -> bool:
        return isinstance(self.link, PipelinedConnection)

    @property
    def oldest(self) -> PendingCommand | None:
        """What has waited longest for its reply."""
        return self.link.oldest if isinstance(self.link, PipelinedConnection) else None

    @property
    def run(self) -> str:
        """Which run of which server the link leads to; empty while there is none."""
        return self._server.info.get("run_id", "") if self.up and self._server else ""

    @property
    def promoted(self) -> bool:
        """Whether the server was a replica once, or began anew from a file: it may lack what was
        acknowledged before."""
        info = self._server.info if self._server else {}
        return int(info.get("second_repl_offset", "-1")) >= 0

    async def open(self) -> Server:
        """There is a link and its server is known; or the exception says what to do."""
        async with self._opening:
            if not self.up or self._server is None:
                self._server = await self._open()
            return self._server

    async def close(self) -> None:
        """There is no link any more, and none will come."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if isinstance(self.link, PipelinedConnection):
            self.link.close("the store was closed")
            self._set_down("the store was closed")
            await asyncio.sleep(0)

    def renew(self, reason: str) -> None:
        """The link ends once it is idle, and another is opened where `find` then says."""
        if isinstance(self.link, PipelinedConnection):
            self.link.retire(reason)
            self._set_down(reason)
            self._reopen()

    def leave(self, reason: str) -> None:
        """The link has ended, what it held has failed, and another is opened where `find` says."""
        if isinstance(self.link, PipelinedConnection):
            self.link.close(reason)

    def ensure_opening(self) -> None:
        """There is a link, or one is being opened."""
        if not self.up:
            self._reopen()

    # What the link calls.

    def lost(self, link: PipelinedConnection, reason: str) -> None:
        if link is self.link:
            self._set_down(reason)
            self._reopen()

    def settled(self, ticket: PendingCommand, outcome: str) -> None:
        self._listener.settled(ticket, outcome)

    def redirected(self, ticket: PendingCommand, message: str) -> bool:
        return self._listener.redirected(self, ticket, message)

    def progressed(self) -> None:
        self._listener.progressed()

    # Inside.

    async def _open(self) -> Server:
        address = await self._find()
        link = await _connect(address, self._manner, self, self._link_type)
        try:
            async with asyncio.timeout(self._manner.connect_s):
                server = await _greet(link, address, self._manner)
        except TimeoutError:
            link.close("the greeting was not answered")
            raise RedisUnreachable(
                f"Redis at {address} does not answer within {self._manner.connect_s:g} s"
            ) from None
        except BaseException:
            link.close("the greeting was refused")
            raise
        self.link = link
        self.place = address
        self._listener.opened(self, link)
        return server

    def _set_down(self, reason: str) -> None:
        self._bursts += self.link.bursts
        self.link = Disconnected(reason)
        self._listener.dropped(self)

    def _reopen(self) -> None:
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._keep_opening())

    async def _keep_opening(self) -> None:
        attempt = 0
        while not self._closed:
            pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            try:
                await self.open()
            except StoreError as error:
                self.link = Disconnected(str(error))
                attempt += 1
            else:
                self.reconnects += 1
                return


async def _connect(
    address: Address,
    manner: ConnectOptions,
    lane: ReconnectingConnection,
    kind: type[PipelinedConnection],
) -> PipelinedConnection:
    loop = asyncio.get_running_loop()

    def make() -> PipelinedConnection:
        return kind(lane, manner.timeout_s)

    try:
        async with asyncio.timeout(manner.connect_s):
            if address.path:
                _, link = await loop.create_unix_connection(make, address.path)
            else:
                server_name = address.host if address.tls else None
                _, link = await loop.create_connection(
                    make, address.host, address.port, ssl=address.tls, server_hostname=server_name
                )
    except TimeoutError:
        raise RedisUnreachable(
            f"no connection to Redis at {address} within {manner.connect_s:g} s: "
            "is the address right, and no firewall in between?"
        ) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise RedisUnreachable(
            f"no connection to Redis at {address}: {why}; start it, or give another --redis URL"
        ) from error
    return link


async def ask(link: PipelinedConnection, *command: Arg) -> Any:
    """The reply to one plain command on this very link."""
    future = asyncio.get_running_loop().create_future()
    link.send(PendingCommand(future, command=command))
    return await future


async def _greet(link: PipelinedConnection, address: Address, manner: ConnectOptions) -> Server:
    """The link is authenticated, named and in its database, and the server is one we can use."""
    steps: list[Sequence[Arg]] = []
    if address.password is not None:
        user = [address.username] if address.username else []
        steps.append(["AUTH", *user, address.password])
    if address.db:
        steps.append(["SELECT", address.db])
    try:
        for step in steps:
            await ask(link, *step)
        await ask(link, "CLIENT", "SETNAME", manner.client_name)
        info = {
            **parse_info(await ask(link, "INFO", "server")),
            **parse_info(await ask(link, "INFO", "cluster")),
            **parse_info(await ask(link, "INFO", "replication")),
        }
        await _wait_until_loaded(link)
    except CommandFailed as error:
        raise RedisUnreachable(
            f"Redis at {address} refused {error.command}: {error.message}"
        ) from error
    server = _describe(info)
    numbers = tuple(int(part) for part in info.get("redis_version", "0").split(".")[:2])
    if numbers < OLDEST:
        raise RedisTooOld(
            f"{server.name} {server.version} at {address} is too old: "
            "Redis 6.2 or newer, or Valkey 7.2 or newer is needed"
        )
    return server


async def _wait_until_loaded(link: PipelinedConnection) -> None:
    while True:
        try:
            await ask(link, "PING")
        except StoreRefused as error:
            if error.code != "LOADING":
                return  # A replica without its master still counts: calls will say it themselves.
        else:
            return
        await asyncio.sleep(0.05)


def _describe(info: dict[str, str]) -> Server:
    valkey = info.get("valkey_version")
    return Server(
        name="Valkey" if valkey else "Redis",
        version=valkey or info.get("redis_version", "unknown"),
        cluster=info.get("cluster_enabled") == "1",
        info=info,
    )


def parse_info(reply: bytes) -> dict[str, str]:
    """The lines `name:value` of an INFO reply."""
    rows = (line.partition(":") for line in reply.decode().splitlines())
    return {name: value for name, colon, value in rows if colon}
