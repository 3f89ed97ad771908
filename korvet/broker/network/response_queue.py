"""Pending responses of a connection, in the order of its requests."""

from collections import deque

from korvet.wire.records import Buffer


class ResponseQueue:
    """Queue of responses. Requests are numbered from 0; a response waits for all earlier ones."""

    __slots__ = ("_first", "_promises", "_rows", "_weights", "promised", "weight")

    def __init__(self) -> None:
        self._first = 0
        self._rows: deque[list[Buffer] | bool | None] = deque()
        self._weights: deque[int] = deque()
        self._promises: dict[int, int] = {}
        self.weight = 0
        """Bytes of the requests that are not answered yet."""
        self.promised = 0
        """Max bytes of the pending responses that may be large."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def next(self) -> int:
        """Number of the next request."""
        return self._first + len(self._rows)

    def begin(self, weight: int, answer: list[Buffer] | None = None) -> None:
        """Add a request in progress, or one that is answered already."""
        self._weights.append(weight)
        self.weight += weight
        self._rows.append(False if answer is None else answer)

    def promise(self, number: int, size: int) -> None:
        """Reserve that many bytes for the response to a request."""
        self._promises[number] = size
        self.promised += size

    def complete(self, number: int, answer: list[Buffer] | None) -> bool:
        """Set the response to a request, None for none; return False if it had one already."""
        if number < self._first:
            return False
        self._rows[number - self._first] = answer
        return True

    @property
    def is_ready(self) -> bool:
        """Return whether there is a response that no earlier request delays."""
        return bool(self._rows) and self._rows[0] is not False

    def take(self, max_bytes: int) -> tuple[list[Buffer], int]:
        """Remove the responses that no earlier request delays; return their parts and bytes.

        Once they have `max_bytes` bytes, the others stay: sending all at once takes too long.
        """
        parts: list[Buffer] = []
        size = 0
        rows, promises = self._rows, self._promises
        while rows and rows[0] is not False and size < max_bytes:
            answer = rows.popleft()
            self.weight -= self._weights.popleft()
            if promises:
                self.promised -= promises.pop(self._first, 0)
            self._first += 1
            if isinstance(answer, list):
                parts += answer
                size += sum(map(len, answer))
        return parts, size

    def clear(self) -> None:
        """Drop all pending responses: the client is disconnected."""
        self._rows.clear()
