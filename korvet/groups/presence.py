"""Time since members can reach this broker and Redis, for group.tick.

After an absence of the broker or Redis, group.tick does not expire members at once, and neither
after Redis's clock was set forward: no member could send a heartbeat in time.
"""

from collections.abc import Callable
from time import monotonic

ABSENCE_S = 2.5
"""Seconds without a reply of Redis to a broker that ticks due groups, after which it counts as
absent: Redis or the broker did not run, and no member could send a heartbeat."""

SETTLE_S = 30.0
"""Seconds after Redis's clock was set forward in which no member expires: longer than the usual
time between two heartbeats."""


class Presence:
    """The presence of one process; `cluster_ms` is that of all brokers."""

    def __init__(self, cluster_ms: Callable[[], int]) -> None:
        self._cluster_ms = cluster_ms
        self._replied_at: float | None = None
        self._back_at: float | None = None
        self._clock: tuple[int, float] | None = None

    def begin(self) -> None:
        """Begin to watch: from now on this process calls Redis continuously."""
        self._replied_at = self._replied_at or monotonic()

    def note_clock(self, redis_ms: int) -> None:
        """Note the time of Redis, which may have been set forward."""
        now, expected_ms = monotonic(), self.expected_ms()
        if expected_ms >= 0 and redis_ms - expected_ms > ABSENCE_S * 1000:
            self._back_at = now + SETTLE_S
        self._clock = (redis_ms, now)

    def expected_ms(self) -> int:
        """Return the time of Redis by this process's clock, -1 if unknown."""
        if self._clock is None:
            return -1
        redis_ms, noted_at = self._clock
        return redis_ms + int((monotonic() - noted_at) * 1000)

    def note_reply(self) -> None:
        """Note a reply of Redis, which may be the first one after an absence."""
        now = monotonic()
        if self._replied_at is not None:
            if now - self._replied_at > ABSENCE_S:
                self._back_at = max(now, self._back_at or now)
            self._replied_at = now

    def ms(self) -> int:
        """Return the ms since members can send heartbeats again; -1 if they always could."""
        now, cluster_ms = monotonic(), self._cluster_ms()
        if self._replied_at is not None and now - self._replied_at > ABSENCE_S:
            return 0
        if self._back_at is None:
            return cluster_ms
        back_ms = max(0, int((now - self._back_at) * 1000))
        return back_ms if cluster_ms < 0 else min(back_ms, cluster_ms)
