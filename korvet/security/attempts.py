"""Slow down guesses of passwords, by address and by user, on listeners and on the console.

Rules
- After FREE failures each further attempt of one address for one user waits: PAIR_S at most, and
  the time doubles with each failure. Attempts of a pair are made one after another. While
  MAX_WAITING of them wait, others fail unchecked.
- The checks of one address are made one after another, so that no address takes all threads. After
  many failures, for whatever users, a check waits ADDRESS_S at most.
- The answer to a wrong password of a user waits USER_S at most, whatever addresses the failures
  came from. A right password is not delayed by other addresses: they cannot lock a user out.
- Failures are forgotten after FORGET_S, and those of a pair at a success.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

from korvet.base.bounded import ByteBounded

FREE = 3
PAIR_S, ADDRESS_S, USER_S = 2.0, 0.1, 2.0
FIRST_S = 0.05
FORGET_S = 300.0
MAX_WAITING = 2

Key = tuple[str, str]
"""Address and user; one of them is empty for failures of all users, or of all addresses."""


class TooManyAttempts(Exception):
    """Other attempts of the address for the user wait already."""


class Attempts:
    """The recent failures of this process, and the attempts that wait."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures = ByteBounded[Key, tuple[int, float]]("failed authentications", 4 << 20)
        self._locks: dict[Key, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, address: str, user: str) -> AsyncIterator[None]:
        """Wait until an attempt may be made, and hold back others. Raises TooManyAttempts."""
        async with self._alone((address, user), MAX_WAITING):
            await asyncio.sleep(self.delay_s((address, user), PAIR_S))
            async with self._alone((address, "")):
                await asyncio.sleep(self.delay_s((address, ""), ADDRESS_S))
                yield

    async def failed(self, address: str, user: str) -> None:
        """Count a failure, and wait before it is answered."""
        now = self._clock()
        for key in ((address, user), (address, ""), ("", user)):
            self._failures.put(key, (self._count(key) + 1, now))
        await asyncio.sleep(self.delay_s(("", user), USER_S))

    def succeeded(self, address: str, user: str) -> None:
        """Forget the failures of the address for the user."""
        self._failures.pop((address, user))

    def delay_s(self, key: Key, max_s: float) -> float:
        """Return the time to wait after the failures so far."""
        above = self._count(key) - FREE
        return 0.0 if above < 0 else min(max_s, FIRST_S * 2.0 ** min(above, 30))

    def _count(self, key: Key) -> int:
        count, at = self._failures.get(key, (0, 0.0))
        return count if self._clock() - at < FORGET_S else 0

    @asynccontextmanager
    async def _alone(self, key: Key, max_attempts: int | None = None) -> AsyncIterator[None]:
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        if max_attempts is not None and users > max_attempts:
            raise TooManyAttempts
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = lock, users - 1
