"""Small appends that meet travel together, in one script call.

Rules
- With nothing in flight an append leaves with this turn's burst. While one flight is on its way,
  small ones wait for its reply, and go then, together, once FEW of them have met even before: Redis
  has one flight while this process has the other. What waits beyond that goes when one lands.
- A partition's state is read and written once for all of its batches in a call. Those for different
  partitions share calls, but in a cluster, whose servers share none.
- A batch that weighs LARGE bytes neither waits nor shares a call: one is to be on its way to Redis
  while another is appended. Nor does what weighs GATHERED wait, nor anything in a cluster, where a
  slow server must not hold up what goes to another; there only what meets in one turn goes
  together.
- Appends to one partition keep their order, and each has its own answer.
"""

import asyncio
from collections.abc import Callable, Iterator

from korvet import logfmt
from korvet.keys import Keys
from korvet.scripts import log
from korvet.scripts.call import Call
from korvet.scripts.log import AppendManyReply, AppendReply
from korvet.store.async_store import AsyncStore
from korvet.store.reply_waiter import ReplyWaiter, fail, settle

logger = logfmt.get("gathering")

LARGE = 32 * 1024
"""Java's producers fill batches of 16 KB by default, one a partition in each request."""
GATHERED = 128 * 1024
ARGUMENT = 64
"""What an argument weighs beside its bytes. Layout `record` has several a record, and calls with
thousands take Redis longer than the same in several calls."""
TOGETHER = 64
TOGETHER_BYTES = 256 * 1024
"""So many batches, or as many as weigh so much, go into one script call at most: one call is some
milliseconds of Redis in layout `record`."""
FEW = 4
"""Fewer than these are no second flight: the calls would grow in number more than they shrink."""

Place = tuple[str, int, str, int]
"""What gathered batches have in common: topic, partition, topic id, and log.append's stamp."""
Landed = Callable[[], None] | None
Waiting = tuple[Call[AppendReply], ReplyWaiter[AppendReply], int]


class AppendBatcher:
    """Belongs to one store, and is the way of every Produce request to it."""

    def __init__(self, store: AsyncStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Place, list[Waiting]] = {}
        self._batches = 0
        self._bytes = 0
        self._in_flight = 0
        self._flushing = False

    def submit(
        self, place: Place, call: Call[AppendReply], size: int, waiter: ReplyWaiter[AppendReply]
    ) -> None:
        """The waiter gets the reply to a call of log.append for that place, whose batch has about
        `size` bytes."""
        size += ARGUMENT * len(call.args)
        if size >= LARGE:
            if self._waiting:
                self._flush()
            self._store.send(call, waiter)
            return
        waiting = self._waiting.get(place)
        if waiting is None:
            self._waiting[place] = [(call, waiter, size)]
        else:
            waiting.append((call, waiter, size))
        self._bytes += size
        self._batches += 1
        if not self._flushing and (self._may_fly() or self._store.is_cluster):
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _may_fly(self) -> bool:
        """Whether what waits need not wait for what is in flight."""
        return (
            not self._in_flight
            or (self._in_flight == 1 and self._batches >= FEW)
            or self._bytes >= GATHERED
        )

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._batches = self._bytes = 0
        self._flushing = False
        if not waiting:
            return
        self._in_flight += 1
        calls = list(_shared(waiting, 1 if self._store.is_cluster else TOGETHER))
        for rows in calls[:-1]:
            self._send(rows, None)
        self._send(calls[-1], self._landed)

    def _send(self, rows: list[tuple[Place, list[Waiting]]], landed: Landed) -> None:
        _, alone = rows[0]
        if len(rows) == 1 and len(alone) == 1:
            call, waiter, _ = alone[0]
            self._store.send(call, _Alone(waiter, landed) if landed else waiter)
            return
        batches = [
            (*place, [log.batch_of(call) for call, _, _ in several]) for place, several in rows
        ]
        waiters = [waiter for _, several in rows for _, waiter, _ in several]
        self._store.send(log.append_many(self._keys, batches), _Gathered(waiters, landed))

    def _landed(self) -> None:
        self._in_flight -= 1
        if self._waiting and self._may_fly():
            self._flush()


def _shared(
    waiting: dict[Place, list[Waiting]], places: int
) -> Iterator[list[tuple[Place, list[Waiting]]]]:
    """What goes in one call: batches for so many places at most, and no more of them than TOGETHER
    and TOGETHER_BYTES say."""
    rows: list[tuple[Place, list[Waiting]]] = []
    count = weight = 0
    for place, several in waiting.items():
        some: list[Waiting] = []
        for each in several:
            full = count == TOGETHER or weight + each[2] > TOGETHER_BYTES
            if (count and full) or (not some and len(rows) == places):
                yield rows
                rows, count, weight, some = [], 0, 0, []
            if not some:
                rows.append((place, some))
            some.append(each)
            count += 1
            weight += each[2]
    yield rows


class _Alone:
    """Hands the reply on, and says that it has come."""

    def __init__(self, waiter: ReplyWaiter[AppendReply], landed: Callable[[], None]) -> None:
        self._waiter = waiter
        self._landed = landed

    def done(self) -> bool:
        return False

    def set_result(self, reply: AppendReply) -> None:
        settle(self._waiter, reply)
        self._landed()

    def set_exception(self, error: BaseException) -> None:
        fail(self._waiter, error)
        self._landed()


class _Gathered:
    """Hands each waiter its part of the reply, and says that it has come."""

    def __init__(self, waiters: list[ReplyWaiter[AppendReply]], landed: Landed) -> None:
        self._waiters = waiters
        self._landed = landed

    def done(self) -> bool:
        return False

    def set_result(self, reply: AppendManyReply) -> None:
        if reply.reason:
            why = reply.reason.decode(errors="replace")
            logger.error_again("an append failed in Redis", error=why)
        for waiter, answer in zip(self._waiters, reply.answers, strict=True):
            settle(waiter, answer)
        if self._landed:
            self._landed()

    def set_exception(self, error: BaseException) -> None:
        for waiter in self._waiters:
            fail(waiter, error)
        if self._landed:
            self._landed()
