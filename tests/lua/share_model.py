"""A share group in plain Python: one state for each offset, and no runs."""

from dataclasses import dataclass, field
from typing import Any

from korvet.share.service import Acknowledge

AVAILABLE, ACQUIRED, DELAYED = "available", "acquired", "delayed"


@dataclass
class Cell:
    """A record that is not finished."""

    state: str
    deliveries: int
    member: str = ""
    until: int = 0


@dataclass
class ShareModel:
    """The rules of a share group. The caller gives the times."""

    limit: int
    max_locks: int
    lock_ms: int
    end: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)
    acknowledged: int = 0
    archived: int = 0
    letters: list[tuple[int, int, int]] = field(default_factory=list)
    """Offset, deliveries and reason of each record that was archived, but for gaps."""

    @property
    def start(self) -> int:
        return min([*self.cells, self.end])

    def counts(self, log_start: int) -> tuple[int, int, int, int, int, int]:
        acquired = sum(cell.state == ACQUIRED for cell in self.cells.values())
        return (
            max(self.start, log_start),
            max(self.end, log_start),
            len(self.cells) - acquired,
            acquired,
            self.acknowledged,
            self.archived,
        )

    def _free(self, offset: int, until: int = 0) -> None:
        cell = self.cells[offset]
        if cell.deliveries >= self.limit:
            del self.cells[offset]
            self.archived += 1
            self.letters.append((offset, cell.deliveries, 2))
        elif until:
            self.cells[offset] = Cell(DELAYED, cell.deliveries, until=until)
        else:
            self.cells[offset] = Cell(AVAILABLE, cell.deliveries)

    def free_expired(self, now: int) -> None:
        for offset, cell in list(self.cells.items()):
            if cell.state == ACQUIRED and cell.until <= now:
                self._free(offset)
            elif cell.state == DELAYED and cell.until <= now:
                self.cells[offset] = Cell(AVAILABLE, cell.deliveries)

    def drop_below(self, log_start: int) -> None:
        self.cells = {at: cell for at, cell in self.cells.items() if at >= log_start}
        self.end = max(self.end, log_start)

    def _take(
        self,
        taken: list[tuple[int, int]],
        first: int,
        last: int,
        end: int,
        most: int | None,
        room: int,
        asked: int,
    ) -> int:
        """Return the offset at which it stops; `most` None takes a begun range whole."""
        for offset in range(first, last + 1):
            cell, is_new = self.cells.get(offset), offset >= end
            is_taken = is_new or (cell is not None and cell.state == AVAILABLE)
            before = cell.deliveries if cell else 0
            fewer = self._together(taken[0][1] - 1 if taken else before, asked)
            if is_taken and fewer is not None:
                if taken and (before != taken[0][1] - 1 or len(taken) >= fewer):
                    return offset
            elif is_taken and taken and self._together(before, asked) is not None:
                return offset
            if most is not None and is_taken and len(taken) >= most:
                return offset
            if is_new and room <= 0 and (most is not None or offset == max(first, end)):
                return offset
            if is_taken:
                taken.append((offset, cell.deliveries + 1 if cell else 1))
                room -= is_new
        return last + 1

    def _together(self, deliveries: int, most: int) -> int | None:
        """Return the limit of records with so many deliveries at once; None: no limit."""
        start = max(2, -(-self.limit // 2))
        if deliveries < start:
            return None
        if deliveries >= self.limit - 1:
            return 1
        return max(1, most >> (deliveries - start + 1))

    def acquire(
        self,
        member: str,
        ranges: list[tuple[int, int]],
        read: tuple[int, int],
        now: int,
        most: int,
        exact: int,
    ) -> list[tuple[int, int]]:
        """Return the acquired offsets with their deliveries; free and drop first."""
        taken: list[tuple[int, int]] = []
        room = self.max_locks - len(self.cells)
        end = self.end if read[0] <= self.end else read[1] + 1
        reached, behind = read[1] + 1, read[0]
        for first, last in ranges:
            fewer = self._together(taken[0][1] - 1, most) if taken else None
            if len(taken) >= (most if fewer is None else fewer):
                reached = behind
                break
            behind = last + 1
            stop = self._take(taken, first, last, end, most if exact else None, room, most)
            if stop <= last:
                reached = stop
                break
            room -= max(0, last + 1 - max(first, end))
        for offset in range(read[0], reached):
            cell = self.cells.get(offset)
            if cell and cell.state == AVAILABLE:
                del self.cells[offset]
        for offset, deliveries in taken:
            self.cells[offset] = Cell(ACQUIRED, deliveries, member, now + self.lock_ms)
        if read[0] <= self.end:
            self.end = max(self.end, reached)
        return taken

    def acknowledge(
        self, member: str, ranges: list[tuple[int, int, int]], now: int, backoff_ms: int
    ) -> str:
        """Acknowledge the ranges; return NONE, or the name of the error."""
        changes: list[tuple[int, int]] = []
        start = self.start
        for first, last, type in ranges:
            if last >= self.end and max(first, start) <= last:
                return "INVALID_REQUEST" if start < self.end else "INVALID_RECORD_STATE"
            for offset in range(max(first, start), last + 1):
                cell = self.cells.get(offset)
                if not (cell and cell.state == ACQUIRED and cell.member == member):
                    return "INVALID_RECORD_STATE"
                if cell.until <= now:
                    return "INVALID_RECORD_STATE"
                changes.append((offset, type))
        for offset, type in changes:
            self._settle(offset, type, now, backoff_ms)
        return "NONE"

    def _settle(self, offset: int, type: int, now: int, backoff_ms: int) -> None:
        cell = self.cells[offset]
        if type == Acknowledge.RENEW:
            cell.until = now + self.lock_ms
        elif type == Acknowledge.RELEASE:
            delay = min(backoff_ms * 2 ** (cell.deliveries - 1), 4 * backoff_ms)
            self._free(offset, now + delay if delay else 0)
        else:
            del self.cells[offset]
            self.acknowledged += type == Acknowledge.ACCEPT
            self.archived += type != Acknowledge.ACCEPT
            if type == Acknowledge.REJECT:
                self.letters.append((offset, cell.deliveries, 1))

    def release(self, member: str) -> int:
        """End the member's session; return the number of released records. Free expired first."""
        owned: list[Any] = [
            at
            for at, cell in self.cells.items()
            if cell.state == ACQUIRED and cell.member == member
        ]
        for at in owned:
            self._free(at)
        return len(owned)
