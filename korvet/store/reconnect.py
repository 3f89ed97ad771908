"""A Redis connection that reconnects with backoff and fails fast while down.

Without a connection, commands fail at once. The first attempt to reconnect is immediate, the next
ones follow pauses that double up to two seconds.

A connection that broke may have delivered calls that the server has not run yet. So:
- The next connection ends it on the server (CLIENT KILL) before its own first call.
- Writing calls without a reply fail only then, or after HELD_S. Another server, or the same one
  restarted, has no such connection: then they fail as soon as the next connection is made.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from korvet.scripts.call import Call
from korvet.store.address import Address
from korvet.store.connection import PendingCommand, PipelinedConnection
from korvet.store.errors import RedisUnreachable, StoreError, StoreUnavailable
from korvet.store.handshake import ConnectOptions, Server, end_connection, handshake
from korvet.store.range_connection import RangeConnection
from korvet.store.sentinel import Find

_PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.5)
HELD_S = 30.0
"""Seconds for which a writing call may stay unanswered after its connection broke.

It is the request timeout of Kafka clients: after it they send the request again in any case.
"""


class ConnectionEvents:
    """Events of a connection; the store overrides what it needs."""

    def answered(self, pending_command: PendingCommand, outcome: str) -> None:
        """Record the answer to a timed command."""

    def redirected(
        self, connection: "ReconnectingConnection", pending_command: PendingCommand, message: str
    ) -> bool:
        """Take over a redirected command; return False if it must fail."""
        return False

    def writing(self) -> None:
        """Decide, before commands leave, whether they still may."""

    def progressed(self) -> None:
        """Continue after replies have arrived."""

    async def accept(self, run: str) -> None:
        """Check a server before anything else is sent to it. Raises StoreError to refuse it."""

    def opened(self, connection: "ReconnectingConnection", pipeline: PipelinedConnection) -> None:
        """Use a connection that passed its handshake."""

    def dropped(self, connection: "ReconnectingConnection") -> None:
        """Handle the loss of the connection."""


class Disconnected:
    """Replaces a connection while there is none: every command fails at once."""

    pending_bytes = 0
    writes = 0

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def send(self, pending_command: PendingCommand) -> None:
        """Fail the command; nothing is sent."""
        pending_command.fail(RedisUnreachable(f"there is no connection to Redis: {self.reason}"))


@dataclass
class Predecessor:
    """A connection that broke with writing calls in flight."""

    identity: tuple[str, int]
    pending_commands: Sequence[PendingCommand]
    reason: str

    def fail(self) -> None:
        """Fail the calls."""
        for pending_command in self.pending_commands:
            pending_command.fail(unavailable(self.reason))
        self.pending_commands = ()


def unavailable(reason: str) -> StoreUnavailable:
    """Return the error of a call whose connection broke."""
    return StoreUnavailable(f"the connection to Redis broke: {reason}")


@dataclass(eq=False, repr=False)
class ReconnectingConnection:
    """A connection to the server that `find` names. `pipeline` takes commands at any time."""

    find: Callable[[], Awaitable[Address]]
    options: ConnectOptions
    listener: ConnectionEvents
    pipeline_type: type[PipelinedConnection] = PipelinedConnection

    def __post_init__(self) -> None:
        self.pipeline: PipelinedConnection | Disconnected = Disconnected(
            "the connection was never opened"
        )
        self.reconnects = 0
        self.address = Address()
        """The address of the newest connection."""
        self.others: Sequence[ReconnectingConnection] = ()
        """Connections to the same server, whose replies are not to wait for this one's."""
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._writes = 0
        self._opening = asyncio.Lock()
        self._server: Server | None = None
        self._predecessors: list[Predecessor] = []
        self._ending: asyncio.Task[None] | None = None

    @property
    def writes(self) -> int:
        """Return the number of writes, past connections included."""
        return self._writes + self.pipeline.writes

    @property
    def up(self) -> bool:
        return isinstance(self.pipeline, PipelinedConnection)

    @property
    def oldest(self) -> PendingCommand | None:
        """Return the command that has waited longest for its reply."""
        return self.pipeline.oldest if isinstance(self.pipeline, PipelinedConnection) else None

    @property
    def others_wait(self) -> bool:
        """Return whether commands on the other connections wait for replies."""
        return any(other.oldest is not None for other in self.others)

    @property
    def run(self) -> str:
        """Return the server's run id; empty while there is no connection."""
        return self._server.info.get("run_id", "") if self.up and self._server else ""

    @property
    def history(self) -> str:
        """Return the id of the server's history; empty while there is no connection."""
        return self._server.history if self.up and self._server else ""

    async def open(self) -> Server:
        """Connect and read the server's properties, or raise the exception that says what to do."""
        async with self._opening:
            if not self.up or self._server is None:
                self._server = await self._open()
            return self._server

    async def close(self) -> None:
        """Close for good."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if isinstance(self.pipeline, PipelinedConnection):
            self.pipeline.close("the store was closed")
            self._set_down("the store was closed")
            await asyncio.sleep(0)
        self._fail_predecessors()

    def renew(self, reason: str) -> None:
        """Close once idle, and connect again to the server that `find` then names."""
        if isinstance(self.pipeline, PipelinedConnection):
            self.pipeline.retire(reason)
            self._set_down(reason)
            self._reopen()

    def leave(self, reason: str) -> None:
        """Close now, fail what is in flight, and connect again to the server that `find` names."""
        if isinstance(self.pipeline, PipelinedConnection):
            self.pipeline.close(reason)
            self._set_down(reason)
            self._reopen()

    def ensure_opening(self) -> None:
        """Start to connect, unless connected or connecting."""
        if not self.up:
            self._reopen()

    # Called by the connection.

    def lost(
        self,
        pipeline: PipelinedConnection,
        reason: str,
        pending_commands: Sequence[PendingCommand],
    ) -> None:
        writing: list[PendingCommand] = []
        for pending_command in pending_commands:
            if pending_command.started:
                self.listener.answered(pending_command, "unavailable")
            if pending_command.writes and not self._closed:
                writing.append(pending_command)
            else:
                pending_command.fail(unavailable(reason))
        if writing:
            predecessor = Predecessor(pipeline.identity, writing, reason)
            self._predecessors.append(predecessor)
            asyncio.get_running_loop().call_later(HELD_S, predecessor.fail)
        if pipeline is self.pipeline:
            self._set_down(reason)
            self._reopen()
        elif writing and isinstance(self.pipeline, PipelinedConnection):
            self._ending = asyncio.create_task(self._end_retired(self.pipeline))

    def answered(self, pending_command: PendingCommand, outcome: str) -> None:
        self.listener.answered(pending_command, outcome)

    def redirected(self, pending_command: PendingCommand, message: str) -> bool:
        return self.listener.redirected(self, pending_command, message)

    def writing(self) -> None:
        self.listener.writing()

    def progressed(self) -> None:
        self.listener.progressed()

    # Implementation.

    async def _open(self) -> Server:
        address = await self.find()
        pipeline = await _connect(address, self.options, self, self.pipeline_type)
        try:
            async with asyncio.timeout(self.options.connect_s):
                server = await handshake(pipeline, address, self.options)
                await self._end_predecessors(pipeline)
            await self.listener.accept(server.history)
        except TimeoutError:
            pipeline.close("the handshake got no answer")
            raise RedisUnreachable(
                f"Redis at {address} does not answer within {self.options.connect_s:g} s"
            ) from None
        except BaseException:
            pipeline.close("the handshake was refused")
            raise
        self.pipeline = pipeline
        self.address = address
        self.listener.opened(self, pipeline)
        return server

    async def _end_predecessors(self, pipeline: PipelinedConnection) -> None:
        """End earlier connections on the server and fail their calls: they cannot run any more."""
        while self._predecessors:
            run, number = self._predecessors[0].identity
            if run and run == pipeline.identity[0]:
                await end_connection(pipeline, number)
            self._predecessors.pop(0).fail()

    async def _end_retired(self, pipeline: PipelinedConnection) -> None:
        with suppress(StoreUnavailable):  # Then the next connection ends them.
            await self._end_predecessors(pipeline)

    def _fail_predecessors(self) -> None:
        for predecessor in self._predecessors:
            predecessor.fail()

    def _set_down(self, reason: str) -> None:
        self._writes += self.pipeline.writes
        self.pipeline = Disconnected(reason)
        self.listener.dropped(self)

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
                self.pipeline = Disconnected(str(error))
                attempt += 1
                gone = isinstance(error.__cause__, ConnectionRefusedError | FileNotFoundError)
                if gone and self.address.path:
                    self._fail_predecessors()  # The process at this end of the socket has ended.
            else:
                self.reconnects += 1
                return


async def _connect(
    address: Address,
    options: ConnectOptions,
    connection: ReconnectingConnection,
    kind: type[PipelinedConnection],
) -> PipelinedConnection:
    loop = asyncio.get_running_loop()
    make = partial(kind, connection, options.timeout_s)
    try:
        async with asyncio.timeout(options.connect_s):
            if address.path:
                _, pipeline = await loop.create_unix_connection(make, address.path)
            else:
                server_name = address.host if address.tls else None
                _, pipeline = await loop.create_connection(
                    make, address.host, address.port, ssl=address.tls, server_hostname=server_name
                )
    except TimeoutError:
        raise RedisUnreachable(
            f"no connection to Redis at {address} within {options.connect_s:g} s: "
            "is the address right, and no firewall in between?"
        ) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise RedisUnreachable(
            f"no connection to Redis at {address}: {why}; start it, or give another --redis URL"
        ) from error
    return pipeline


GROUPS = "group."
"""Prefix of membership and commit scripts: they and the log's scripts never wait for each other."""


class ConnectionSet:
    """The connections to one server: for writes of groups, other writes, reads and ranges.

    Four connections, so that long work does not delay short work: an append of a thousand records
    delays no heartbeat, a long reply delays neither, and a large range of entries delays no short
    command. Each keeps the order of its calls.
    """

    def __init__(self, find: Find, options: ConnectOptions, listener: ConnectionEvents) -> None:
        self.writes = ReconnectingConnection(find, options, listener)
        self.groups = ReconnectingConnection(find, options, listener)
        self.reads = ReconnectingConnection(find, options, listener)
        self.ranges = ReconnectingConnection(find, options, listener, RangeConnection)
        self.ranges.others = (self.writes, self.groups, self.reads)
        self.all = (self.writes, self.groups, self.ranges, self.reads)

    def for_call(self, call: Call[Any]) -> ReconnectingConnection:
        """Return the connection that takes the call: always the same one for a script."""
        if not call.script.writes:
            return self.reads
        return self.groups if call.script.name.startswith(GROUPS) else self.writes
