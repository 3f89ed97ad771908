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
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

from korvet.log.layouts import layout_of
from korvet.store.notifications import Notifier

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
        if not self._is_complete and self.max_wait_ms > 0 and self.partitions:
            await self._wait(seen)

    async def _wait(self, seen: int) -> None:
        """Wait for messages; `seen` is the notifier's count before the first try."""
        channels: dict[str, list[int]] = {}
        foreign = []
        for at, one in enumerate(self.partitions):
            for channel in self._channels(one):
                channels.setdefault(channel, []).append(at)
            if not layout_of(one.topic).holds_batches:
                foreign.append(at)
        recheck_s = RECHECK_S * max(1.0, len(foreign) / RECHECK_PARTITIONS)
        recheck_at = monotonic() + recheck_s if foreign else inf
        async with self.notifier.listen(sorted(channels), seen) as subscription:
            while not (self._is_complete or self._is_expired):
                self._before_wait()
                began = monotonic()
                until = min(self._wake_at, recheck_at, self._deadline)
                notified = await subscription.wait(until - began)
                now = monotonic()
                self.waited_s += now - began
                self._is_expired = now >= self._deadline
                changed = [at for channel in notified for at in channels[channel]]
                if now < recheck_at:
                    await self._try_again(notified, changed, ())
                else:
                    recheck_at = now + recheck_s
                    await self._try_again(notified, changed, foreign)

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
