"""One pipelined connection: commands out in bursts, replies in the order of the commands.

Rules
- All that is sent in one turn of the loop leaves in one write, at the beginning of the next turn.
- Replies resolve futures right where the bytes arrive; a cancelled future's reply is dropped.
- A script is loaded on a connection before its first call there, in the same burst. Redis may
  forget it any time (SCRIPT FLUSH, a failover): the calls that meet NOSCRIPT are then collected,
  new ones are held back until everything in flight is answered, and all are sent in their old
  order, the collected ones by EVAL. So calls of one script run in the order they were sent; a
  call may only be overtaken by one that was in flight with it and whose script was still there.
- A connection that breaks fails every ticket it holds. Nothing is sent twice.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import hiredis

from korvet.scripts.call import Arg, Call, ContractBroken, Script
from korvet.store.errors import StoreUnavailable, command_refusal, refusal
from korvet.store.reply_waiter import ReplyWaiter
from korvet.store.resp import NOTHING, ErrorReply, Packer, reader

RECEIVE = 256 * 1024


class PendingCommand:
    """One command on its way: who waits for it, what it is, and what it weighs."""

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
    def name(self) -> str:
        """The script's name, or the command's."""
        if self.call is not None:
            return self.call.script.name
        word = self.command[0]
        return word if isinstance(word, str) else bytes(word).decode() if word else ""

    def fail(self, error: BaseException) -> None:
        """Whoever waits gets the error; nobody waiting is fine too."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


class Owner(Protocol):
    """Who opened a link and hears what happens to it."""

    def lost(self, link: "PipelinedConnection", reason: str) -> None:
        """The connection ended; its tickets have failed already."""

    def settled(self, ticket: PendingCommand, outcome: str) -> None:
        """A ticket with a start time was answered: `ok`, `error` or `unavailable`."""

    def redirected(self, ticket: PendingCommand, message: str) -> bool:
        """Redis refused the ticket; True when the owner has taken it over."""

    def progressed(self) -> None:
        """Some replies have arrived."""


class PipelinedConnection(asyncio.BufferedProtocol):
    """One connection. Made by `asyncio`'s create_connection, then used through `send`."""

    def __init__(self, owner: Owner, timeout_s: float) -> None:
        self.pending_bytes = 0
        self.bursts = 0
        self._owner = owner
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        made = reader()
        self._feed: Callable[[bytearray, int, int], object] = made.feed  # type: ignore[assignment]
        self._gets: Callable[[], object] = made.gets
        self._buffer = bytearray(RECEIVE)
        # asyncio's TLS slices what it is given and writes into the slice: a bytearray's is a copy.
        self._view = memoryview(self._buffer)
        self._packer = Packer()
        self._pending: deque[PendingCommand] = deque()
        self._flushing = False
        self._loaded: dict[Script[Any], str] = {}
        self._broken: dict[Script[Any], str] = {}
        self._missing: list[PendingCommand] = []
        self._held: list[PendingCommand] | None = None
        self._oldest: PendingCommand | None = None
        self._silent = 0
        self._watch_handle: asyncio.TimerHandle | None = None
        self._why = "Redis closed the connection"
        self._retiring = False

    # What the store calls.

    @property
    def oldest(self) -> PendingCommand | None:
        """What has waited longest for its reply."""
        return self._pending[0] if self._pending else None

    def send(self, ticket: PendingCommand) -> None:
        """The ticket leaves with this turn's burst."""
        if self._held is not None or self._transport is None:
            self._hold(ticket)
            return
        call = ticket.call
        if call is None:
            size = self._packer.add(ticket.command)
        else:
            script = call.script
            keys = call.keys
            if ticket.tries:
                size = self._packer.add(("EVAL", script.text, len(keys), *keys, *call.args))
            else:
                sha1 = self._loaded.get(script) or self._load(script)
                size = self._packer.add(("EVALSHA", sha1, len(keys), *keys, *call.args))
        ticket.size = size
        self.pending_bytes += size
        self._pending.append(ticket)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def close(self, reason: str) -> None:
        """The connection ends now; what it holds fails with the reason."""
        self._why = reason
        if self._transport is not None:
            self._transport.abort()

    def retire(self, reason: str) -> None:
        """The connection ends as soon as all that is in flight is answered."""
        self._why = reason
        self._retiring = True
        self._end_if_idle()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._watch_handle = self._loop.call_later(self._timeout_s / 2, self._watch)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._feed(self._buffer, 0, nbytes)
        gets = self._gets
        pending = self._pending
        try:
            while (reply := gets()) is not NOTHING:
                ticket = pending.popleft()
                self.pending_bytes -= ticket.size
                future = ticket.future
                if future is None or type(reply) is ErrorReply:
                    self._answer_special(ticket, reply)
                elif not future.done():
                    call = ticket.call
                    if call is None:
                        future.set_result(reply)
                    else:
                        self._answer(future, call, reply)
                    if ticket.started:
                        self._owner.settled(ticket, "ok")
        except (hiredis.ProtocolError, IndexError) as error:
            self.close(f"Redis sent what is no reply: {error}")
            return
        self._owner.progressed()
        if self._retiring:
            self._end_if_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._watch_handle is not None:
            self._watch_handle.cancel()
        reason = str(exc) if exc is not None else self._why
        tickets = [*self._missing, *self._pending, *(self._held or ())]
        self._missing, self._held = [], None
        self._pending.clear()
        self.pending_bytes = 0
        for ticket in tickets:
            ticket.fail(StoreUnavailable(f"the connection to Redis broke: {reason}"))
            if ticket.started:
                self._owner.settled(ticket, "unavailable")
        self._owner.lost(self, reason)

    # Inside.

    def _flush(self) -> None:
        self._flushing = False
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        buffers = self._packer.take()
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif buffers:
            transport.writelines(buffers)
        self.bursts += 1

    def _answer(self, waiter: ReplyWaiter[Any], call: Call[Any], reply: object) -> None:
        try:
            decoded = call.decode(reply)
        except ContractBroken as error:
            waiter.set_exception(error)
        else:
            waiter.set_result(decoded)

    def _answer_special(self, ticket: PendingCommand, reply: object) -> None:
        """A reply nobody awaits as it is: our own commands', and errors."""
        if ticket.then is not None:
            ticket.then(reply)
        if ticket.future is None:
            return
        message = str(reply)
        call = ticket.call
        if call is not None and message.startswith("NOSCRIPT"):
            if not ticket.tries:
                self._collect(ticket)
                return
            message = self._broken.get(call.script, message)
        if self._owner.redirected(ticket, message):
            return
        if call is None:
            ticket.fail(command_refusal(ticket.name, message))
        else:
            ticket.fail(refusal(call.script.name, call.script.version, message))
        if ticket.started:
            self._owner.settled(ticket, "error")

    def _load(self, script: Script[Any]) -> str:
        """The script's sha1; the burst loads the text before anything that is sent from now on."""

        def loaded(reply: object) -> None:
            if isinstance(reply, ErrorReply):
                self._broken[script] = str(reply)

        self._loaded[script] = script.sha1
        self.send(PendingCommand(None, command=("SCRIPT", "LOAD", script.text), then=loaded))
        return script.sha1

    def _collect(self, ticket: PendingCommand) -> None:
        """The ticket will go again, after all that is in flight and before all that is new."""
        ticket.tries = 1
        self._missing.append(ticket)
        if self._held is None:
            self.send(PendingCommand(None, command=("PING",), then=self._resume))
            self._held = []

    def _resume(self, _: object) -> None:
        tickets = [*self._missing, *(self._held or ())]
        self._missing, self._held = [], None
        self._loaded.clear()
        for ticket in tickets:
            self.send(ticket)

    def _hold(self, ticket: PendingCommand) -> None:
        if self._held is not None:
            self._held.append(ticket)
        else:
            ticket.fail(StoreUnavailable(f"there is no connection to Redis: {self._why}"))

    def _end_if_idle(self) -> None:
        if not self._pending and not self._held and self._transport is not None:
            self._transport.close()

    def _watch(self) -> None:
        """A server that answers nothing for a whole period is as good as gone."""
        self._watch_handle = self._loop.call_later(self._timeout_s / 2, self._watch)
        oldest = self._pending[0] if self._pending else None
        self._silent = self._silent + 1 if oldest is not None and oldest is self._oldest else 0
        if self._silent == 2:
            self.close(f"Redis answered nothing for {self._timeout_s:g} s")
        self._oldest = oldest
