"""Small appends that meet travel together: one script call for those of one partition.

Rules
- With nothing in flight an append leaves with this turn's burst. While one is in flight, small ones
  wait for its reply, and go then, together: Redis, which does one thing at a time, loses nothing,
  and a partition's state is read and written once for all of them.
- A batch of LARGE bytes neither waits nor shares a call: one is to be on its way to Redis while
  another is appended. Nor do GATHERED bytes wait, nor anything in a cluster, where a slow server
  must not hold up what goes to another; there only what meets in one turn goes together.
- Appends to one partition keep their order, and each has its own answer.
"""

import asyncio
from functools import partial

from korvet.keys import Keys
from korvet.scripts import log
from korvet.scripts.call import Call
from korvet.scripts.log import AppendReply, GatherReply
from korvet.store.aio import AsyncStore

LARGE = 8 * 1024
GATHERED = 32 * 1024
TOGETHER = 64
"""So many batches go into one script call at most."""

Place = tuple[str, int, str, int]
"""What gathered batches have in common: topic, partition, topic id, and log.append's stamp."""
Waiting = tuple[Call[AppendReply], "asyncio.Future[AppendReply]"]


class Gatherer:
    """Belongs to one store, and is the way of every Produce request to it."""

    def __init__(self, store: AsyncStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Place, list[Waiting]] = {}
        self._bytes = 0
        self._in_flight = 0
        self._flushing = False

    def submit(
        self, place: Place, call: Call[AppendReply], size: int
    ) -> "asyncio.Future[AppendReply]":
        """The future gets the reply to a call of log.append for that place; `size` is about what
        its batch weighs, in bytes."""
        if size >= LARGE:
            if self._waiting:
                self._flush()
            return self._store.submit(call)
        future: asyncio.Future[AppendReply] = self._loop.create_future()
        waiting = self._waiting.get(place)
        if waiting is None:
            self._waiting[place] = [(call, future)]
        else:
            waiting.append((call, future))
        self._bytes += size
        if not self._flushing and (
            not self._in_flight or self._bytes >= GATHERED or self._store.is_cluster
        ):
            self._flushing = True
            self._loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        self._flushing = False
        last: asyncio.Future[AppendReply] | asyncio.Future[GatherReply] | None = None
        for place, rows in waiting.items():
            for at in range(0, len(rows), TOGETHER):
                last = self._send(place, rows[at : at + TOGETHER])
        if last is not None:
            self._in_flight += 1
            last.add_done_callback(self._answered)

    def _send(
        self, place: Place, rows: list[Waiting]
    ) -> "asyncio.Future[AppendReply] | asyncio.Future[GatherReply]":
        if len(rows) == 1:
            call, future = rows[0]
            return self._store.submit(call, future)
        name, partition, topic_id, stamp = place
        batches = [log.batch_of(call) for call, _ in rows]
        gathered = self._store.submit(
            log.gather(self._keys, name, partition, topic_id=topic_id, stamp=stamp, batches=batches)
        )
        gathered.add_done_callback(partial(_distribute, [future for _, future in rows]))
        return gathered

    def _answered(self, _: object) -> None:
        self._in_flight -= 1
        if self._waiting and not self._in_flight:
            self._flush()


def _distribute(
    futures: "list[asyncio.Future[AppendReply]]", gathered: "asyncio.Future[GatherReply]"
) -> None:
    error = gathered.exception()
    if error is not None:
        for future in futures:
            if not future.done():
                future.set_exception(error)
        return
    for future, answer in zip(futures, gathered.result().of(len(futures)), strict=True):
        if not future.done():
            future.set_result(answer)
