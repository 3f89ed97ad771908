"""A request that waits for records in its partitions: Kafka's DelayedOperation.

Rules
- Try once, then wait for messages on the partitions' channels, at most max_wait_ms. An append by
  any broker publishes one.
- An entry that another Redis client has added publishes none: partitions of layout `record` are
  tried again every RECHECK_S, and less often if they are more than RECHECK_PARTITIONS.
- A client that disconnects cancels the wait, and with it the subscription.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

from korvet.log.layouts import layout_of
from korvet.store.notifications import Notifier, Subscription

RECHECK_S = 0.2
RECHECK_PARTITIONS = 100


@dataclass(eq=False, repr=False)
class DelayedOperation(ABC):
    """A request in progress: its partitions, and how long it waits."""

    notifier: Notifier
    partitions: Sequence[Any]
    max_wait_ms: int

    def __post_init__(self) -> None:
        self._deadline = monotonic() + max(self.max_wait_ms, 0) / 1000
        self._wake_at = inf
        """When to try again without a message."""
        self._is_expired = self._is_complete = False
        self._by_channel: dict[str, list[int]] = {}
        self._foreign: list[int] = []
        """Partitions that may have foreign entries."""
        self._recheck_s = inf
        """Seconds between two tries of those."""
        self.waited_s = 0.0
        """Seconds spent waiting for messages."""

    @property
    def remaining_s(self) -> float:
        """Seconds that are left of max_wait_ms."""
        return max(0.0, self._deadline - monotonic())

    async def run(self) -> None:
        """Try the partitions, and wait until the response is complete."""
        seen = self.notifier.message_count
        await self._begin()
        if not self._is_complete and self.max_wait_ms > 0 and self._may_wait():
            await self._wait(seen)

    def _may_wait(self) -> bool:
        """Return whether there are partitions that may get records."""
        return bool(self.partitions)

    async def _wait(self, seen: int) -> None:
        """Wait for messages; `seen` is the notifier's count before the first try."""
        async with self._listen(seen) as subscription:
            recheck_at = monotonic() + self._recheck_s
            while not (self._is_complete or self._is_expired):
                self._before_wait()
                began = monotonic()
                until = min(self._wake_at, recheck_at, self._deadline)
                notified = await subscription.wait(until - began)
                now = monotonic()
                self.waited_s += now - began
                self._is_expired = now >= self._deadline
                changed, foreign = self._find(notified), list[int]()
                if now >= recheck_at:
                    recheck_at, foreign = now + self._recheck_s, self._may_be_foreign()
                await self._try_again(notified, changed, foreign)

    def _listen(self, seen: int) -> AbstractAsyncContextManager[Subscription]:
        """Return the subscription to all partitions' channels."""
        for at, one in enumerate(self.partitions):
            for channel in self._channels(one):
                self._by_channel.setdefault(channel, []).append(at)
            if not layout_of(one.topic).holds_batches:
                self._foreign.append(at)
        if self._foreign:
            self._recheck_s = RECHECK_S * max(1.0, len(self._foreign) / RECHECK_PARTITIONS)
        return self.notifier.listen(sorted(self._by_channel), seen)

    def _find(self, notified: Collection[str]) -> list[int]:
        """Return the partitions with these channels, as indexes of `partitions`."""
        return [at for channel in notified for at in self._by_channel[channel]]

    def _may_be_foreign(self) -> list[int]:
        """Return the partitions to try again without a message."""
        return self._foreign

    @abstractmethod
    async def _begin(self) -> None:
        """Try all partitions."""

    @abstractmethod
    def _channels(self, one: Any) -> Sequence[str]: ...

    @abstractmethod
    def _before_wait(self) -> None: ...

    @abstractmethod
    async def _try_again(
        self, notified: Collection[str], changed: Sequence[int], foreign: Sequence[int]
    ) -> None:
        """Try the partitions of the notified channels, and those that may have foreign entries."""
