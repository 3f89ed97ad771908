"""Tables: the newest value of each key of a partition, as hashes that scripts keep.

Rules
- An append adds its records in its own script. `fills` adds what no append has: records of ended
  transactions, of other programs, from before the table was enabled, and compressed ones.
- Two processes may fill a partition at once: the table is then that of one fill.
"""

from collections.abc import AsyncGenerator
from typing import Any, Protocol, TypeVar

from korvet.scripts.call import Call, Reply
from korvet.scripts.calls.partition import FillTableReply
from korvet.scripts.keys import Partition
from korvet.store.calls import ReadCalls
from korvet.store.errors import StoreError, StoreRefused, StoreUnavailable
from korvet.wire.record_entries import unpacked

R = TypeVar("R", bound=Reply)


class Runs(Protocol):
    """A store, of any kind."""

    async def run(self, call: Call[R]) -> R: ...


AT_MOST = 1000
"""Entries that one call reads."""


async def fills(store: Runs, partition: Partition) -> AsyncGenerator[FillTableReply, None]:
    """Fill the partition's table, and yield the reply of each call.

    The last one has the state of a partition without a topic: its error.
    """
    values: list[bytes] = []
    while True:
        reply = await store.run(partition.fill_table(values, at_most=AT_MOST))
        yield reply
        if not reply.more:
            return
        packed: Any = iter(reply.packed)
        values = []
        for offset, name, value in zip(packed, packed, packed, strict=True):
            values += (offset, unpacked(name, value))


async def fill(store: Runs, partition: Partition) -> FillTableReply:
    """Fill the partition's table; return the last reply."""
    async for reply in fills(store, partition):
        last = reply
    return last


def is_of_partition(error: StoreError) -> bool:
    """Return whether a fill failed by the partition's keys, or since Redis is full.

    Otherwise Redis cannot be reached.
    """
    return isinstance(error, StoreRefused) or not isinstance(error, StoreUnavailable)


async def sizes(store: ReadCalls, partition: Partition) -> tuple[int, int]:
    """Return the number of keys of a partition's table, and its bytes of Redis's memory."""
    keys = store.submit_command("HLEN", partition.table)
    size = store.submit_command("MEMORY", "USAGE", partition.table)
    return await keys, await size or 0
