"""The limits of a broker process's reads from the remote store: bytes a second, reads at a time."""

import asyncio
from collections.abc import Callable
from time import monotonic

THREADS = 10
NO_RATE = (1 << 63) - 1
"""Bytes a second: the default."""


class ReadLimit:
    """Lets reads wait while those before were more than `rate` bytes a second."""

    def __init__(self, rate: Callable[[], int] | None = None, threads: int = THREADS) -> None:
        self.threads = threads
        self.slots = asyncio.Semaphore(threads)
        """One for each read of an object store in progress."""
        self._rate = rate
        self._may_read_at = 0.0

    @property
    def is_set(self) -> bool:
        """Return whether there is a rate below the setting's default, which is none."""
        return self._rate is not None and self._rate() < NO_RATE

    @property
    def delays(self) -> bool:
        """Return whether a read that begins now has to wait."""
        return self._may_read_at > 0.0 and self._may_read_at > monotonic()

    async def wait(self) -> None:
        """Wait until the next read may begin."""
        # Each read that waited moves the time for the others.
        while (rest := self._may_read_at - monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(rest)

    def charge(self, size: int) -> None:
        """Let the next read wait for as long as these bytes may take, whether they were read."""
        if self._rate is not None:
            self._may_read_at = max(self._may_read_at, monotonic()) + size / self._rate()
