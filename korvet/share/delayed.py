"""A ShareFetch that waits for records: Kafka's DelayedShareFetch.

Rules
- Acquire from all partitions once. Without records or an error wait, at most max_wait_ms.
- A partition is tried again on a message of an append, or of records released in a full or used
  share partition. It is also tried when a lock expires or a delay ends. An entry that another
  Redis client has added publishes none: layout `record` is tried every RECHECK_S.
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
from korvet.log.layouts import layout_of
from korvet.share.acquire_values import Acquired, Available, Budget, ShareFetchParams
from korvet.share.acquirer import Acquirer
from korvet.store.notifications import Notifier
from korvet.topics.table import Topic

RECHECK_S = 0.2
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
class DelayedShareFetch:
    """A ShareFetch in progress."""

    acquirer: Acquirer
    notifier: Notifier
    params: ShareFetchParams
    partitions: Sequence[SharedPartition]
    max_wait_ms: int
    budget: Budget
    refusal_of: Callable[[str], ErrorCode]
    """Returns why the client may not read a topic now, NONE if it may."""

    def __post_init__(self) -> None:
        self._deadline = monotonic() + max(self.max_wait_ms, 0) / 1000
        self._waits = self.max_wait_ms > 0
        self._counts_bytes = self.params.min_bytes > 1 and self._waits and self.budget.records > 0

    @property
    def remaining_s(self) -> float:
        """Seconds that are left of max_wait_ms."""
        return max(0.0, self._deadline - monotonic())

    @property
    def _is_complete(self) -> bool:
        return any(one.acquired.runs or one.acquired.error for one in self.partitions)

    async def run(self) -> None:
        """Acquire records, and wait until there are some."""
        seen = self.notifier.message_count
        everything = range(len(self.partitions))
        if not self._counts_bytes or await self._suffices(everything):
            await self._try(everything)
        if not self._is_complete and self._waits and self.partitions:
            await self._wait(seen)

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
        most = self.params.min_bytes
        await gather_bounded(self._measure, [self.partitions[at] for at in changed])
        return sum(one.available.bytes for one in self.partitions) >= most

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

    async def _wait(self, seen: int) -> None:
        """Wait for messages on the partitions' channels.

        `seen` is the notifier's count before the first try.
        """
        appends: dict[str, int] = {}
        releases: dict[str, int] = {}
        for at, one in enumerate(self.partitions):
            append, release = self.acquirer.channels(one.topic, one.partition)
            appends[append] = releases[release] = at
        foreign = [
            at for at, one in enumerate(self.partitions) if not layout_of(one.topic).holds_batches
        ]
        recheck_at = monotonic() + RECHECK_S if foreign else inf
        async with self.notifier.listen([*appends, *releases], seen) as subscription:
            while not self._is_complete:
                expire_at = min(one.expire_at for one in self.partitions)
                timeout_s = min(self._deadline, recheck_at, expire_at) - monotonic()
                notified = await subscription.wait(timeout_s)
                now = monotonic()
                freed = {releases[channel] for channel in notified if channel in releases}
                freed.update(at for at, one in enumerate(self.partitions) if one.expire_at <= now)
                for at in freed:
                    one = self.partitions[at]
                    self.acquirer.forget_position(self.params.group, one.topic, one.partition)
                due = freed | {appends[channel] for channel in notified if channel in appends}
                if now >= recheck_at:
                    due.update(foreign)
                    recheck_at = now + RECHECK_S
                is_expired = now >= self._deadline
                if not self._counts_bytes:
                    await self._try(sorted(due))
                elif is_expired or (due and await self._suffices(sorted(due))):
                    await self._try(range(len(self.partitions)))
                if is_expired:
                    return

    def only_storage_errors(self) -> bool:
        """Return whether there are no records, and an error because Redis is unreachable."""
        found = [one.acquired for one in self.partitions]
        return not any(one.runs for one in found) and any(
            one.error == ErrorCode.KAFKA_STORAGE_ERROR for one in found
        )


def _note_expiry(one: SharedPartition, wait_ms: int) -> None:
    """Note when a lock of the partition expires or a delay ends, in `wait_ms`."""
    one.expire_at = inf if wait_ms < 0 else monotonic() + (wait_ms + 1) / 1000
