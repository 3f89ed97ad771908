"""What one read of a partition found, and what of that readers of committed records get."""

import asyncio
from typing import Any, Protocol

import msgspec

from korvet.errors import ErrorCode
from korvet.keys import Partition
from korvet.log.entry import Entry, is_transactional
from korvet.topics.table import Topic

ABORTED_ROWS = 256


class Store(Protocol):
    """What reading needs of a store."""

    def submit_command(self, *command: Any) -> asyncio.Future[Any]: ...
    async def run(self, call: Any) -> Any: ...


class ReadResult(msgspec.Struct):
    """What one read found. `entries` fit the bytes asked for, or are the first one alone.

    `appended` is how many bytes were ever appended to the log, a moment before it was read.
    `stable` is the last stable offset, None in a partition that never saw a transaction. `aborted`
    lists producer id and first offset of aborted transactions, of a committed read only.
    """

    error: ErrorCode
    start: int = -1
    end: int = -1
    epoch: int = 0
    entries: list[Entry] = []
    size: int = 0
    stable: int | None = None
    aborted: list[tuple[int, int]] = []
    appended: int = 0

    @property
    def last_stable(self) -> int:
        """The offset of the oldest record of an open transaction, or the end."""
        if self.stable is None or self.stable < 0:
            return self.end
        return max(self.stable, self.start)


async def commit_only(
    store: Store, found: ReadResult, topic: Topic, k: Partition, offset: int, known_end: int
) -> None:
    """Nothing at or behind the last stable offset is left, and `aborted` is complete.

    The state is a moment older than the entries: a transaction that began behind the end it
    knew is open for all it can tell.
    """
    for at, entry in enumerate(found.entries):
        if entry.last >= known_end and is_transactional(topic, entry):
            del found.entries[at:]
            found.end = max(known_end, found.entries[-1].last + 1 if at else 0)
            break
    if found.stable is not None:
        found.entries = [entry for entry in found.entries if entry.last < found.last_stable]
        await _name_aborted(store, found, k, offset)


async def _name_aborted(store: Store, found: ReadResult, k: Partition, offset: int) -> None:
    """`found.aborted` has every aborted transaction with a record among the entries."""
    found.aborted = []
    upper = found.entries[-1].last + 1 if found.entries else offset
    low, more = f"{offset}", bool(found.entries)
    while more:
        flat = await store.submit_command(
            "ZRANGEBYSCORE", k.aborted_txns, low, "+inf", "WITHSCORES", "LIMIT", 0, ABORTED_ROWS
        )
        stable = upper
        for member in flat[::2]:
            producer_id, first, stable = map(int, member.split(b":"))
            if first < upper:
                found.aborted.append((producer_id, first))
        # Whatever was aborted later began at or behind the last row's `stable`.
        more = len(flat) == 2 * ABORTED_ROWS and stable < upper
        low = "(" + flat[-1].decode() if flat else low
