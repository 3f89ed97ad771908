"""Tables: the newest value of each key of a partition, as hashes that scripts keep.

Rules
- An append adds its records in its own script. `fills` adds what no append has: records of ended
  transactions, of other programs, from before the table was enabled, and compressed ones.
- Two processes may fill a partition at once: the table is then that of one fill.
"""

from collections.abc import AsyncGenerator
from typing import Any

from korvet.scripts.calls.partition import FillTableReply
from korvet.scripts.keys import Partition
from korvet.store.calls import AsyncCalls
from korvet.wire.record_entries import unpacked

AT_MOST = 1000
"""Entries that one call reads."""


async def fills(store: AsyncCalls, partition: Partition) -> AsyncGenerator[FillTableReply, None]:
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


async def fill(store: AsyncCalls, partition: Partition) -> FillTableReply:
    """Fill the partition's table; return the last reply."""
    async for reply in fills(store, partition):
        last = reply
    return last
