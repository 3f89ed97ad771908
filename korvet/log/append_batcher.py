"""Coalesce concurrent small appends into one script call.

Rules
- If nothing is in flight, an append leaves in this event-loop iteration. While one call is in
  flight, small appends wait for its reply and are sent in one call; once MIN_SECOND_FLIGHT wait,
  they leave as a second call. So Redis runs one call while this process handles the other. Appends
  that arrive after that wait for one of the two replies.
- In one call a partition's state is read and written once for all of its batches. Batches for
  different partitions share a call, except in a cluster, where they may be on different servers.
- A batch of MAX_SHARED_BYTES or more is sent at once, in a separate call: another one is in flight
  while Redis appends it, in parts if it is large (`append_parts`). MAX_WAITING_BYTES in total do
  not wait either.
- A batch with scheduled records is sent alone, too: its call is schedule.add.
- In a cluster nothing waits, so that a slow server does not delay appends to others: only appends
  of one event-loop iteration share a call.
- Appends to one partition keep their order, and each gets its own reply.
"""

import asyncio
from collections.abc import Callable, Iterator

from korvet.base import logfmt
from korvet.log.append_parts import is_packed, send_append
from korvet.scripts.append_call import append_many, batch_of
from korvet.scripts.call import Call
from korvet.scripts.calls.namespace import LogAppendManyReply
from korvet.scripts.calls.partition import APPEND, AppendReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.calls import ReplyWaiter, fail, resolve

logger = logfmt.get("log.append_batcher")

MAX_SHARED_BYTES = 32 * 1024
"""Size from which on a batch is sent alone. The Java producer fills batches up to 16 KB."""
MAX_WAITING_BYTES = 128 * 1024
"""Total size from which on waiting appends are sent."""
ARGUMENT_BYTES = 64
"""What an argument costs in addition to its bytes. Layout `record` has several per record, and
Redis takes longer for one call with thousands of them than for several calls."""
MAX_BATCHES = 64
"""Max batches per append_many call."""
MAX_CALL_BYTES = 256 * 1024
"""Max bytes per append_many call: some milliseconds of Redis in layout `record`."""
MIN_SECOND_FLIGHT = 4
"""Batches that make a second call worthwhile: fewer would increase the number of calls."""

Destination = tuple[str, int, str, int]
"""Topic, partition, topic id, and log.append's stamp."""
OnLanded = Callable[[], None] | None
Waiting = tuple[Call[AppendReply], ReplyWaiter[AppendReply], int]
"""A call, what takes its reply, and its size in bytes."""


class AppendBatcher:
    """Sends the appends of all Produce requests of a broker to its store."""

    def __init__(self, store: AsyncStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Destination, list[Waiting]] = {}
        self._batches = 0
        self._bytes = 0
        self._in_flight = 0
        self._flushing = False

    def submit(
        self,
        destination: Destination,
        call: Call[AppendReply],
        size: int,
        waiter: ReplyWaiter[AppendReply],
    ) -> None:
        """Send a call of log.append, whose batch has about `size` bytes, for the waiter."""
        size += ARGUMENT_BYTES * len(call.args)
        if size >= MAX_SHARED_BYTES or call.script is not APPEND or is_packed(call):
            if self._waiting:
                self._flush()
            send_append(self._store, call, waiter)
            return
        waiting = self._waiting.get(destination)
        if waiting is None:
            self._waiting[destination] = [(call, waiter, size)]
        else:
            waiting.append((call, waiter, size))
        self._bytes += size
        self._batches += 1
        if not self._flushing and (self._may_send() or self._store.is_cluster):
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _may_send(self) -> bool:
        """Return whether waiting appends need not wait for a reply."""
        return (
            not self._in_flight
            or (self._in_flight == 1 and self._batches >= MIN_SECOND_FLIGHT)
            or self._bytes >= MAX_WAITING_BYTES
        )

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._batches = self._bytes = 0
        self._flushing = False
        if not waiting:
            return
        self._in_flight += 1
        calls = list(_split(waiting, 1 if self._store.is_cluster else MAX_BATCHES))
        for rows in calls[:-1]:
            self._send(rows, None)
        self._send(calls[-1], self._landed)

    def _send(self, rows: list[tuple[Destination, list[Waiting]]], on_landed: OnLanded) -> None:
        _, first = rows[0]
        if len(rows) == 1 and len(first) == 1:
            call, waiter, _ = first[0]
            self._store.send(call, _OneReply(waiter, on_landed) if on_landed else waiter)
            return
        batches = [
            (*destination, [batch_of(call) for call, _, _ in waiting])
            for destination, waiting in rows
        ]
        waiters = [waiter for _, waiting in rows for _, waiter, _ in waiting]
        self._store.send(append_many(self._keys, batches), _ManyReplies(waiters, on_landed))

    def _landed(self) -> None:
        self._in_flight -= 1
        if self._waiting and self._may_send():
            self._flush()


def _split(
    waiting: dict[Destination, list[Waiting]], max_destinations: int
) -> Iterator[list[tuple[Destination, list[Waiting]]]]:
    """Split the appends into calls of at most MAX_BATCHES and MAX_CALL_BYTES."""
    rows: list[tuple[Destination, list[Waiting]]] = []
    count = size = 0
    for destination, appends in waiting.items():
        some: list[Waiting] = []
        for append in appends:
            full = count == MAX_BATCHES or size + append[2] > MAX_CALL_BYTES
            if (count and full) or (not some and len(rows) == max_destinations):
                yield rows
                rows, count, size, some = [], 0, 0, []
            if not some:
                rows.append((destination, some))
            some.append(append)
            count += 1
            size += append[2]
    yield rows


class _OneReply:
    """Passes the reply of log.append to its waiter, then calls `on_landed`."""

    def __init__(self, waiter: ReplyWaiter[AppendReply], on_landed: Callable[[], None]) -> None:
        self._waiter = waiter
        self._on_landed = on_landed

    def done(self) -> bool:
        return False

    def set_result(self, reply: AppendReply) -> None:
        resolve(self._waiter, reply)
        self._on_landed()

    def set_exception(self, error: BaseException) -> None:
        fail(self._waiter, error)
        self._on_landed()


class _ManyReplies:
    """Passes the replies of log.append_many to their waiters, then calls `on_landed`."""

    def __init__(self, waiters: list[ReplyWaiter[AppendReply]], on_landed: OnLanded) -> None:
        self._waiters = waiters
        self._on_landed = on_landed

    def done(self) -> bool:
        return False

    def set_result(self, reply: LogAppendManyReply) -> None:
        if reply.reason:
            why = reply.reason.decode(errors="replace")
            logger.error_again("append failed in Redis", error=why)
        for waiter, answer in zip(self._waiters, reply.answers, strict=True):
            resolve(waiter, answer)
        if self._on_landed:
            self._on_landed()

    def set_exception(self, error: BaseException) -> None:
        for waiter in self._waiters:
            fail(waiter, error)
        if self._on_landed:
            self._on_landed()
