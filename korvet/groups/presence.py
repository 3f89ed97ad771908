"""Time since members can reach this broker and Redis, for group.tick.

After an absence of the broker or Redis, group.tick does not expire members at once.
"""

from collections.abc import Callable
from time import monotonic

ABSENCE_S = 2.5
"""Seconds without a reply of Redis to a broker that ticks due groups, after which it counts as
absent: Redis or the broker did not run, and no member could send a heartbeat."""


class Presence:
    """The presence of one process; `cluster_ms` is that of all brokers."""

    def __init__(self, cluster_ms: Callable[[], int]) -> None:
        self._cluster_ms = cluster_ms
        self._replied_at: float | None = None
        self._back_at: float | None = None

    def begin(self) -> None:
        """Begin to watch: from now on this process calls Redis continuously."""
        self._replied_at = self._replied_at or monotonic()

    def note_reply(self) -> None:
        """Note a reply of Redis, which may be the first one after an absence."""
        now = monotonic()
        if self._replied_at is not None:
            if now - self._replied_at > ABSENCE_S:
                self._back_at = now
            self._replied_at = now

    def ms(self) -> int:
        """Return the ms since members can send heartbeats again; -1 if they always could."""
        now, cluster_ms = monotonic(), self._cluster_ms()
        if self._replied_at is not None and now - self._replied_at > ABSENCE_S:
            return 0
        if self._back_at is None:
            return cluster_ms
        back_ms = int((now - self._back_at) * 1000)
        return back_ms if cluster_ms < 0 else min(back_ms, cluster_ms)
