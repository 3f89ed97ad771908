"""The limits of a broker process's reads from the remote store: bytes a second, reads at a time.

A read that finds all threads in use waits. One that finds the most waiting reads is refused, as
Kafka does it; the error that a client gets is one it retries.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from korvet.store.errors import StoreError

THREADS = 10
MAX_WAITING = 100
NO_RATE = (1 << 63) - 1
"""Bytes a second: the default."""


class TooManyReads(StoreError):
    """Says that as many reads wait for a thread as may wait."""


@dataclass(eq=False, repr=False)
class ReadLimit:
    """Lets reads wait while those before were more than `rate` bytes a second."""

    rate: Callable[[], int] | None = None
    threads: int = THREADS
    most_waiting: int = MAX_WAITING

    def __post_init__(self) -> None:
        self.waiting = 0
        """Reads that wait for a thread."""
        self._slots = asyncio.Semaphore(self.threads)
        self._may_read_at = 0.0

    @property
    def is_set(self) -> bool:
        """Return whether there is a rate below the setting's default, which is none."""
        return self.rate is not None and self.rate() < NO_RATE

    @property
    def delays(self) -> bool:
        """Return whether a read that begins now has to wait."""
        return self._may_read_at > 0.0 and self._may_read_at > monotonic()

    async def wait(self) -> None:
        """Wait until the next read may begin."""
        # Each read that waited moves the time for the others.
        while (wait_s := self._may_read_at - monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(wait_s)

    @asynccontextmanager
    async def thread(self) -> AsyncIterator[None]:
        """Take one of the threads for the block. Raises TooManyReads."""
        if self._slots.locked():
            if self.waiting >= self.most_waiting:
                raise TooManyReads(
                    f"{self.threads} reads of the remote store are in progress and {self.waiting} "
                    "wait: the limits are remote.log.reader.threads and "
                    "remote.log.reader.max.pending.tasks"
                )
            self.waiting += 1
            try:
                await self._slots.acquire()
            finally:
                self.waiting -= 1
        else:
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()

    def charge(self, size: int) -> None:
        """Let the next read wait for as long as these bytes may take, whether they were read."""
        if self.rate is not None:
            self._may_read_at = max(self._may_read_at, monotonic()) + size / self.rate()
