"""A ShareFetch that waits for records: Kafka's DelayedShareFetch.

Rules
- Acquire from all partitions once. Without records or an error wait (`delayed_operation`).
- Records released in a full or used share partition publish a message too. A partition is also
  tried again when a lock expires or a delay ends.
- With a min_bytes above 1 the log's bytes from the group's next records on are counted first: with
  fewer than min_bytes in all partitions nothing is acquired before the wait ends.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic

import msgspec

from korvet.base.bounded import gather_bounded
from korvet.base.errors import ErrorCode
from korvet.fetch.delayed_operation import DelayedOperation
from korvet.share.acquire_values import Acquired, Available, Budget, ShareFetchParams
from korvet.share.acquirer import Acquirer
from korvet.topics.table import Topic

AT_ONCE = 8
"""Partitions that are read at the same time."""


class SharedPartition(msgspec.Struct):
    """A partition of a ShareFetch, and what the member has acquired from it."""

    topic: Topic
    partition: int
    acquired: Acquired
    expire_at: float = inf
    """When to try it again, by the clock of `monotonic`."""
    available: Available = msgspec.field(default_factory=Available)


@dataclass(eq=False, repr=False)
class DelayedShareFetch(DelayedOperation):
    """A ShareFetch in progress."""

    partitions: Sequence[SharedPartition]
    acquirer: Acquirer
    params: ShareFetchParams
    budget: Budget
    refusal_of: Callable[[str], ErrorCode]
    """Returns why the client may not read a topic now, NONE if it may."""

    def __post_init__(self) -> None:
        super().__post_init__()
        waits = self.params.min_bytes > 1 and self.max_wait_ms > 0
        self._counts_bytes = waits and self.budget.records > 0

    async def _begin(self) -> None:
        await self._try_again((), range(len(self.partitions)), ())

    async def _try(self, which: Collection[int]) -> None:
        """Acquire from these partitions in turn, until the budget is used up."""
        left = list(which)
        while left:
            group, left = left[:AT_ONCE], left[AT_ONCE:]
            await asyncio.gather(*(self._acquire(self.partitions[at]) for at in group))
            budget = self.budget
            if budget.records <= 0 or (budget.is_used and budget.bytes <= 0):
                return
            # Another partition had reserved the budget, and did not use all of it.
            left += [at for at in group if self.partitions[at].acquired.skipped]

    async def _suffices(self, changed: Collection[int]) -> bool:
        """Return whether the partitions have min_bytes; count those that changed."""
        min_bytes = self.params.min_bytes
        await gather_bounded(self._measure, [self.partitions[at] for at in changed])
        return sum(one.available.bytes for one in self.partitions) >= min_bytes

    async def _measure(self, one: SharedPartition) -> None:
        params = self.params
        measured = await self.acquirer.measure(
            params, one.topic, one.partition, one.available, params.min_bytes
        )
        _note_expiry(one, measured.wait_ms)

    async def _acquire(self, one: SharedPartition) -> None:
        # The client's rights may have been taken while it waited.
        refusal = self.refusal_of(one.topic.name)
        if refusal:
            one.acquired = Acquired(refusal)
            return
        one.acquired = await self.acquirer.acquire(
            self.params, one.topic, one.partition, self.budget
        )
        _note_expiry(one, one.acquired.wait_ms)

    def _channels(self, one: SharedPartition) -> Sequence[str]:
        return self.acquirer.channels(one.topic, one.partition)

    def _before_wait(self) -> None:
        self._wake_at = min(one.expire_at for one in self.partitions)

    async def _try_again(
        self, notified: Collection[str], changed: Sequence[int], foreign: Sequence[int]
    ) -> None:
        due, now = {*changed, *foreign}, monotonic()
        for at, one in enumerate(self.partitions):
            _, releases = self._channels(one)
            if releases in notified or one.expire_at <= now:
                self.acquirer.forget_position(self.params.group, one.topic, one.partition)
                due.add(at)
        if not self._counts_bytes:
            await self._try(sorted(due))
        elif self._is_expired or (due and await self._suffices(sorted(due))):
            await self._try(range(len(self.partitions)))
        self._is_complete = any(one.acquired.runs or one.acquired.error for one in self.partitions)

    def only_storage_errors(self) -> bool:
        """Return whether there are no records, and an error because Redis is unreachable."""
        found = [one.acquired for one in self.partitions]
        return not any(one.runs for one in found) and any(
            one.error == ErrorCode.KAFKA_STORAGE_ERROR for one in found
        )


def _note_expiry(one: SharedPartition, wait_ms: int) -> None:
    """Note when a lock of the partition expires or a delay ends, in `wait_ms`."""
    one.expire_at = inf if wait_ms < 0 else monotonic() + (wait_ms + 1) / 1000
