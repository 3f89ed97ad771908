"""A Fetch that waits for records: Kafka's DelayedFetch.

Rules
- Read all partitions once. With fewer than min_bytes, wait (`delayed_operation`).
- Complete at once on an error or a diverging epoch, or if a partition has more records than fit
  the response.
- With a min_bytes above ESTIMATE_ABOVE_BYTES, ask for the counters of the notified partitions
  first: read those partitions only if min_bytes may be satisfied.
- While waiting, do not keep more than MAX_KEPT_BYTES of records: read them again at the end.
- A client that disconnects cancels the read: it holds bytes of ResponseMemory, and gives them back.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from time import monotonic

from korvet.fetch.delayed_operation import DelayedOperation
from korvet.fetch.partition_reader import (
    FetchParams,
    PartitionFetch,
    PartitionReader,
    opens_batches,
)
from korvet.fetch.sessions import FetchedPartition, FetchSession, PartitionRow
from korvet.log.layouts import layout_of
from korvet.log.opening import in_thread
from korvet.log.read_result import ReadResult
from korvet.store.notifications import Subscription

MAX_KEPT_BYTES = 1 << 16
ESTIMATE_ABOVE_BYTES = 1 << 12
TURN_S = 1.0
"""Seconds between two tries of partitions of a larger session without a message."""
YIELD_RECORDS = 500
"""Records of one partition whose encoding takes some milliseconds: other tasks run after it."""


@dataclass(eq=False, repr=False)
class DelayedFetch(DelayedOperation):
    """A Fetch in progress: its partitions, and the conditions that complete it."""

    partitions: Sequence[PartitionFetch]
    reader: PartitionReader
    params: FetchParams

    def __post_init__(self) -> None:
        super().__post_init__()
        self._size = 0
        self._changed: set[int] = set()
        """Notified partitions that have not been read since."""

    async def _begin(self) -> None:
        await self._read(self.partitions)

    async def _read(self, partitions: Sequence[PartitionFetch]) -> None:
        """Read partitions, a wave at a time that fits the response, and decide if it is complete.

        The records of the other partitions stay in the response.
        """
        reader, params = self.reader, self.params
        limit = reader.response_limit(params)
        size = self._size - sum(one.size for one in partitions)
        failed = more = False
        at = 0
        while at < len(partitions):
            wave, planned = _next_wave(partitions, at, limit - size)
            at += len(wave)
            results = await self._read_wave(wave, limit - size, min(planned, limit))
            for one, result in zip(wave, results, strict=True):
                encoded = None
                if opens_batches(one.topic, params.version):
                    encoded = await in_thread(partial(reader.encode, one, result, params))
                reader.respond(one, result, params, limit - size, size == 0, encoded)
                size += one.size
                failed = failed or (one.response is not None and one.response.error_code != 0)
                failed = failed or result.diverging >= 0
                one.has_more = _has_more(one, result, params.committed)
                more = more or one.has_more
                if one.records > YIELD_RECORDS and not layout_of(one.topic).holds_batches:
                    await asyncio.sleep(0)
        self._size = size
        self._is_complete = failed or (more and size > 0) or size >= params.min_bytes

    async def _read_wave(
        self, wave: Sequence[PartitionFetch], limit: int, planned: int
    ) -> Sequence[ReadResult]:
        memory, read = self.reader.memory, self.reader.read
        memory.bytes += planned
        try:
            if len(wave) == 1:
                return [await read(wave[0], self.params, limit)]
            return await asyncio.gather(*(read(one, self.params, limit) for one in wave))
        finally:
            memory.bytes -= planned

    async def _wait(self, seen: int) -> None:
        await super()._wait(seen)
        await self._read([one for one in self.partitions if one.response is None])

    def _channels(self, one: PartitionFetch) -> Sequence[str]:
        return [one.topic.partition(one.request.partition).channel]

    def _before_wait(self) -> None:
        """Drop the records read so far, if they are too large to keep while waiting."""
        if self._size > MAX_KEPT_BYTES:
            for one in self.partitions:
                if one.size:
                    one.response = None

    async def _try_again(
        self, notified: Collection[str], changed: Sequence[int], foreign: Sequence[int]
    ) -> None:
        """Read the changed partitions, unless their counters say that they are too few bytes."""
        self._changed.update(changed)
        stale = set(self._changed)
        estimates = self.params.min_bytes > ESTIMATE_ABOVE_BYTES and not self._is_expired
        if stale and estimates and not await self._may_satisfy(changed):
            stale.clear()
        stale.update(at for at in foreign if self.partitions[at].size <= MAX_KEPT_BYTES)
        if stale:
            await self._read([self.partitions[at] for at in sorted(stale)])
            self._changed -= stale

    async def _may_satisfy(self, changed: Sequence[int]) -> bool:
        """Return whether the partitions may have min_bytes, or more than fits, by the counters."""
        reader, params = self.reader, self.params
        if not await reader.estimate_growth([self.partitions[at] for at in changed]):
            return True
        total = sum(one.size + one.grown for one in self.partitions)
        if total >= min(params.min_bytes, reader.response_limit(params)):
            return True
        return any(
            one.grown and one.size + one.grown > one.request.partition_max_bytes
            for one in self.partitions
        )


@dataclass(eq=False, repr=False)
class SessionFetch(DelayedFetch):
    """A Fetch of a session in progress: it reads the partitions that are due.

    `partitions` begins with those of `rows`. Those with news are added to both.
    """

    partitions: list[PartitionFetch]
    session: FetchSession
    rows: dict[FetchedPartition, PartitionRow]

    async def run(self) -> None:
        self._refused = len(self.rows) - len(self.partitions)
        self._at = {
            one: at
            for at, one in enumerate(
                each for each, row in self.rows.items() if isinstance(row, PartitionFetch)
            )
        }
        await self.session.watch_all(self._at)
        await super().run()

    def _may_wait(self) -> bool:
        return len(self.session.partitions) > self._refused

    def _listen(self, seen: int) -> AbstractAsyncContextManager[Subscription]:
        super()._listen(seen)
        if not self.session.is_small:
            self._recheck_s = TURN_S
        return nullcontext(self.session.watch)

    def _find(self, notified: Collection[str]) -> list[int]:
        return self._add(self.session.changed(notified))

    def _may_be_foreign(self) -> list[int]:
        return self._foreign if self.session.is_small else self._add(self.session.turn(monotonic()))

    def _add(self, some: Collection[FetchedPartition]) -> list[int]:
        """Return the indexes of these partitions, which are added if they are not known yet."""
        for one in some:
            if one not in self._at and one not in self.rows and one.topic is not None:
                self._at[one] = len(self.partitions)
                self.rows[one] = fetch = PartitionFetch(one.topic, one.request)
                self.partitions.append(fetch)
        return [self._at[one] for one in some if one in self._at]

    async def _try_again(
        self, notified: Collection[str], changed: Sequence[int], foreign: Sequence[int]
    ) -> None:
        if notified:
            await self.session.watch.add(notified)
        await super()._try_again(notified, changed, foreign)


def _next_wave(
    partitions: Sequence[PartitionFetch], begin: int, room: int
) -> tuple[Sequence[PartitionFetch], int]:
    """Return the partitions to read together, and how many bytes they may give.

    However few bytes a partition asks for, it gives a whole batch.
    """
    planned, at = 0, begin
    while at < len(partitions) and (at == begin or planned < room):
        one = partitions[at]
        planned += max(one.request.partition_max_bytes, one.topic.policy.max_message_bytes)
        at += 1
    return partitions[begin:at], planned


def _has_more(one: PartitionFetch, result: ReadResult, committed: bool) -> bool:
    """Return whether the partition has more records than its response."""
    end = result.last_stable if committed else result.end
    if result.batches:
        return result.next_offset < end
    return bool(result.entries) and (not one.size or result.entries[-1].last + 1 < end)
