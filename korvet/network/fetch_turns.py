"""Turns of the connections whose fetches are answered without waiting: one in each iteration.

A fetch of 1 MB that is read and written at once takes 0.3 ms. Other requests need several
iterations of the event loop: without turns, each would wait for the fetches of all consumers.
"""

import asyncio
from collections import deque
from typing import Protocol


class Waiter(Protocol):
    """A connection that waits for its turn."""

    def continue_requests(self) -> None:
        """Begin the next requests; one of them may take the turn."""


class FetchTurns:
    """The turns of one event loop, in the order in which connections asked."""

    def __init__(self) -> None:
        self._queue: deque[Waiter] = deque()
        self._waiting: set[Waiter] = set()
        self._is_taken = False
        self._called: Waiter | None = None

    def take(self, waiter: Waiter) -> bool:
        """Return whether it is the connection's turn; else it is called when it is."""
        if not self._is_taken and (self._called is waiter or not self._queue):
            self._is_taken = True
            asyncio.get_running_loop().call_soon(self._next)
            return True
        if waiter not in self._waiting:
            self._waiting.add(waiter)
            self._queue.append(waiter)
        return False

    def _next(self) -> None:
        """Call connections until one takes its turn."""
        self._is_taken = False
        while self._queue and not self._is_taken:
            self._called = self._queue.popleft()
            self._waiting.discard(self._called)
            try:
                self._called.continue_requests()
            except BaseException:
                asyncio.get_running_loop().call_soon(self._next)
                raise
            finally:
                self._called = None
