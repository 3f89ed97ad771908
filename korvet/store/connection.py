"""A pipelined connection: many commands per write, replies in the order of the commands.

Rules
- All commands sent in one event-loop iteration leave in one write, at the start of the next. A
  command of WRITTEN_AT_ONCE bytes leaves at once, with those that wait: Redis runs it while this
  process prepares the next.
- Replies resolve futures where the bytes arrive; the reply of a cancelled future is dropped.
- A script is loaded on a connection before its first call, in the same write. Redis may lose it at
  any time (SCRIPT FLUSH, failover). The connection then collects the calls that got NOSCRIPT and
  holds back new ones. Once everything in flight is answered, it sends all in their old order, the
  collected ones by EVAL. So calls of one script run in the order they were sent. Only a call that
  was in flight at the same time, with its script still loaded, can overtake another.
- A broken connection gives every command it holds to its owner. Nothing is sent twice.
- The kernel discards what it has not delivered when the connection closes, also if the process is
  killed. What it has delivered, the server may still run: see `reconnect`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import hiredis

from korvet.scripts.call import Arg, Call, ContractBroken, Script
from korvet.store.calls import ReplyWaiter
from korvet.store.errors import StoreUnavailable, ValueTooLarge, command_error, script_error
from korvet.store.resp import NOTHING, ErrorReply, Packer, reader
from korvet.store.send_buffers import discard_at_close

RECEIVE = 256 * 1024
WRITTEN_AT_ONCE = 32 * 1024
"""Bytes of a command that does not wait for the end of the event-loop iteration."""

logger = logging.getLogger("korvet.store")
PLAIN_WRITES = frozenset({"EVAL", "UNLINK", "XADD"})
"""The writing commands that Korvet sends outside scripts."""


class PendingCommand:
    """A command in flight: its waiter, its name, its size."""

    __slots__ = ("call", "command", "future", "moves", "size", "started", "then", "tries")

    def __init__(
        self,
        future: ReplyWaiter[Any] | None,
        call: Call[Any] | None = None,
        command: Sequence[Arg] = (),
        started: float = 0.0,
        then: Callable[[object], None] | None = None,
    ) -> None:
        self.future = future
        self.call = call
        self.command = command
        self.started = started
        self.then = then
        self.size = 0
        self.tries = 0
        self.moves = 0

    @property
    def writes(self) -> bool:
        """Return whether it changes data, so that it must not run late."""
        if self.call is not None:
            return self.call.script.writes
        return self.command[0] in PLAIN_WRITES

    @property
    def name(self) -> str:
        """Return the name of the script or command."""
        if self.call is not None:
            return self.call.script.name
        word = self.command[0]
        return word if isinstance(word, str) else bytes(word).decode() if word else ""

    def fail(self, error: BaseException) -> None:
        """Fail the waiter with the error, if there is one."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


class Owner(Protocol):
    """Opened the connection and receives its events."""

    def lost(
        self,
        pipeline: "PipelinedConnection",
        reason: str,
        pending_commands: Sequence[PendingCommand],
    ) -> None:
        """Handle the end of the connection, and fail its commands."""

    def answered(self, pending_command: PendingCommand, outcome: str) -> None:
        """Record the answer to a timed command: `ok`, `error` or `unavailable`."""

    def redirected(self, pending_command: PendingCommand, message: str) -> bool:
        """Take over a redirected command; return False if it must fail."""

    def writing(self) -> None:
        """Decide, before commands leave, whether they still may; `close` keeps them from it."""

    def progressed(self) -> None:
        """Continue after replies have arrived."""

    @property
    def others_wait(self) -> bool:
        """Return whether commands on other connections wait for replies."""


class PipelinedConnection(asyncio.BufferedProtocol):
    """A connection, created by asyncio's create_connection and used through `send`."""

    def __init__(self, owner: Owner, timeout_s: float) -> None:
        self.pending_bytes = 0
        self.writes = 0
        self.identity = ("", 0)
        """The server's run id, and the connection's number there."""
        self._owner = owner
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        parser = reader()
        self._feed: Callable[[bytearray, int, int], object] = parser.feed  # type: ignore[assignment]
        self._gets: Callable[[], object] = parser.gets
        self._buffer = bytearray(RECEIVE)
        # asyncio's TLS slices its input and writes into the slice: slicing a bytearray copies.
        self._view = memoryview(self._buffer)
        self._packer = Packer()
        self._pending: deque[PendingCommand] = deque()
        self._flushing = False
        self._loaded: dict[Script[Any], str] = {}
        self._broken: dict[Script[Any], str] = {}
        self._missing: list[PendingCommand] = []
        self._waiting: list[PendingCommand] | None = None
        self._oldest: PendingCommand | None = None
        self._silent = 0
        self._watch_handle: asyncio.TimerHandle | None = None
        self._why = "Redis closed the connection"
        self._retiring = False

    # Called by the store.

    @property
    def oldest(self) -> PendingCommand | None:
        """Return the command that has waited longest for its reply."""
        return self._pending[0] if self._pending else None

    def send(self, pending_command: PendingCommand) -> None:
        """Send the command with this iteration's write."""
        if self._waiting is not None or self._transport is None:
            self._hold(pending_command)
            return
        call = pending_command.call
        try:
            if call is None:
                size = self._packer.add(pending_command.command)
            else:
                script = call.script
                keys = call.keys
                if pending_command.tries:
                    size = self._packer.add(("EVAL", script.text, len(keys), *keys, *call.args))
                else:
                    sha1 = self._loaded.get(script) or self._load(script)
                    size = self._packer.add(("EVALSHA", sha1, len(keys), *keys, *call.args))
        except ValueTooLarge as error:
            pending_command.fail(error)
            return
        pending_command.size = size
        self.pending_bytes += size
        self._pending.append(pending_command)
        if size >= WRITTEN_AT_ONCE:
            self._write()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def limit_values(self, longest: int) -> None:
        """Refuse values of more bytes: Redis would close the connection."""
        self._packer.longest = longest

    def close(self, reason: str) -> None:
        """Close now; fail the commands in flight with the reason."""
        self._why = reason
        if self._transport is not None:
            self._transport.abort()

    def retire(self, reason: str) -> None:
        """Close as soon as everything in flight is answered."""
        self._why = reason
        self._retiring = True
        self._end_if_idle()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # uvloop writes within `write` only what exceeds this limit. Nothing may delay commands
        # after `writing` was called.
        self._transport.set_write_buffer_limits(high=0)
        discard_at_close(transport.get_extra_info("socket"))
        self._watch_handle = self._loop.call_later(self._timeout_s / 2, self._watch)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._feed(self._buffer, 0, nbytes)
        gets = self._gets
        pending = self._pending
        try:
            while (reply := gets()) is not NOTHING:
                self._deliver(pending.popleft(), reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self.close(f"invalid reply from Redis: {error}")
            return
        self._owner.progressed()
        if self._retiring:
            self._end_if_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._watch_handle is not None:
            self._watch_handle.cancel()
        reason = str(exc) if exc is not None else self._why
        pending_commands = [*self._missing, *self._pending, *(self._waiting or ())]
        self._missing, self._waiting = [], None
        self._pending.clear()
        self.pending_bytes = 0
        self._owner.lost(self, reason, pending_commands)

    # Implementation.

    def _flush(self) -> None:
        self._flushing = False
        self._write()

    def _write(self) -> None:
        self._owner.writing()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        buffers = self._packer.take()
        if not buffers:
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)
        self.writes += 1

    def _deliver(self, pending_command: PendingCommand, reply: object) -> None:
        """Pass the reply to the command's waiter."""
        self.pending_bytes -= pending_command.size
        future = pending_command.future
        if future is None or type(reply) is ErrorReply:
            self._answer_special(pending_command, reply)
        elif not future.done():
            call = pending_command.call
            try:
                future.set_result(reply if call is None else call.decode(reply))
            except ContractBroken as error:
                future.set_exception(error)
            if pending_command.started:
                self._owner.answered(pending_command, "ok")

    def _answer_special(self, pending_command: PendingCommand, reply: object) -> None:
        """Handle a reply that no waiter takes as it is: our own commands' replies, and errors."""
        if pending_command.then is not None:
            pending_command.then(reply)
        if pending_command.future is None:
            return
        message = str(reply)
        call = pending_command.call
        if call is not None and message.startswith("NOSCRIPT"):
            if not pending_command.tries:
                self._collect(pending_command)
                return
            message = self._broken.get(call.script, message)
        if self._owner.redirected(pending_command, message):
            return
        if call is None:
            pending_command.fail(command_error(pending_command.name, message))
        else:
            pending_command.fail(script_error(call.script.name, call.script.version, message))
        if pending_command.started:
            self._owner.answered(pending_command, "error")

    def _load(self, script: Script[Any]) -> str:
        """Return the script's sha1; load its text before anything sent from now on."""

        def loaded(reply: object) -> None:
            if isinstance(reply, ErrorReply):
                self._broken[script] = str(reply)

        self._loaded[script] = script.sha1
        self.send(PendingCommand(None, command=("SCRIPT", "LOAD", script.text), then=loaded))
        return script.sha1

    def _collect(self, pending_command: PendingCommand) -> None:
        """Keep the command to send it again, after everything in flight and before new commands."""
        pending_command.tries = 1
        self._missing.append(pending_command)
        if self._waiting is None:
            self.send(PendingCommand(None, command=("PING",), then=self._resume))
            self._waiting = []

    def _resume(self, _: object) -> None:
        pending_commands = [*self._missing, *(self._waiting or ())]
        self._missing, self._waiting = [], None
        self._loaded.clear()
        for pending_command in pending_commands:
            self.send(pending_command)

    def _hold(self, pending_command: PendingCommand) -> None:
        if self._waiting is not None:
            self._waiting.append(pending_command)
        else:
            pending_command.fail(StoreUnavailable(f"there is no connection to Redis: {self._why}"))

    def _end_if_idle(self) -> None:
        if not self._pending and not self._waiting and self._transport is not None:
            self._transport.close()

    def _watch(self) -> None:
        """Close the connection if the server answers nothing for a whole period."""
        self._watch_handle = self._loop.call_later(self._timeout_s / 2, self._watch)
        oldest = self.oldest
        self._silent = self._silent + 1 if oldest is not None and oldest is self._oldest else 0
        if self._silent == 2:
            self.close(f"Redis answered nothing for {self._timeout_s:g} s")
        self._oldest = oldest


class PubSubConnection(PipelinedConnection):
    """A connection that takes messages instead of replies once `on_message` was called."""

    _on_message: Callable[[list[Any]], None] | None = None
    _alive = True
    _refused = False

    def on_message(self, on_message: Callable[[list[Any]], None]) -> None:
        """Deliver everything that arrives from now on to `on_message`."""
        self._on_message = on_message

    def say(self, *command: Arg) -> None:
        """Send the command; its reply arrives as a message."""
        packer = Packer()
        packer.add(command)
        if self._transport is not None:
            self._transport.writelines(packer.take())

    def buffer_updated(self, nbytes: int) -> None:
        if self._on_message is None:
            super().buffer_updated(nbytes)
            return
        self._alive = True
        self._feed(self._buffer, 0, nbytes)
        while (reply := self._gets()) is not NOTHING:
            if isinstance(reply, list):
                self._on_message(reply)
            elif isinstance(reply, ErrorReply) and not self._refused:
                self._refused = True
                logger.warning("subscription failed: %s", reply)

    def _watch(self) -> None:
        """Ping the silent server; close the connection if no answer comes by the next check."""
        if self._on_message is None:
            super()._watch()
            return
        self._watch_handle = self._loop.call_later(self._timeout_s, self._watch)
        if not self._alive:
            self.close(f"Redis answered nothing for {self._timeout_s:g} s")
            return
        self._alive = False
        self.say("PING")
