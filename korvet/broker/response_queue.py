"""The answers that a connection owes, in the order of its requests."""

from collections import deque

from korvet.wire.records import Buffer


class ResponseQueue:
    """Requests are numbered as they begin, from 0 on; an answer leaves behind all earlier ones."""

    __slots__ = ("_first", "_promises", "_rows", "_weights", "promised", "weight")

    def __init__(self) -> None:
        self._first = 0
        self._rows: deque[list[Buffer] | bool | None] = deque()
        self._weights: deque[int] = deque()
        self._promises: dict[int, int] = {}
        self.weight = 0
        """Bytes of the requests that are not answered yet."""
        self.promised = 0
        """Bytes that their answers may have, of those that may be large."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def next(self) -> int:
        """The number of the request that begins next."""
        return self._first + len(self._rows)

    def begin(self, weight: int, answer: list[Buffer] | None = None) -> None:
        """One request more is under way, or answered already."""
        self._weights.append(weight)
        self.weight += weight
        self._rows.append(False if answer is None else answer)

    def promise(self, number: int, size: int) -> None:
        """The answer to a request may have so many bytes."""
        self._promises[number] = size
        self.promised += size

    def settle(self, number: int, answer: list[Buffer] | None) -> bool:
        """The request has its answer, None where it gets none. False: it had one before."""
        if number < self._first:
            return False
        self._rows[number - self._first] = answer
        return True

    def take(self) -> list[Buffer]:
        """What can leave: every answer for which all earlier ones have."""
        parts: list[Buffer] = []
        rows, promises = self._rows, self._promises
        while rows and rows[0] is not False:
            answer = rows.popleft()
            self.weight -= self._weights.popleft()
            if promises:
                self.promised -= promises.pop(self._first, 0)
            self._first += 1
            if isinstance(answer, list):
                parts += answer
        return parts

    def clear(self) -> None:
        """Nobody is there to be answered."""
        self._rows.clear()
