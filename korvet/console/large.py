"""Find records that are too large for a page, before Redis sends them.

A read returns at least one entry, however large. The sparse index of a partition knows the bytes
between two of its rows, without the records. Entries of foreign clients are not in it.
"""

from korvet.library.async_korvet import AsyncKorvet
from korvet.library.values import StoredRecord
from korvet.log.entries_query import LARGEST

MAX_ENTRY_BYTES = 16 << 20
"""Bytes between two rows of the index above which a page does not read them."""


class LargeRecords(StoredRecord, frozen=True):
    """Records that a page does not read: those from `offset` up to `next_offset`."""

    next_offset: int
    size: int
    """About the bytes of the records."""


async def large_at(
    log: AsyncKorvet, topic: str, partition: int, offset: int
) -> LargeRecords | None:
    """Return the records at the offset if they are too large, else None."""
    keys = log.keys.partition(topic, partition)
    largest, total, end = await log.store.command("HMGET", keys.log, LARGEST, "bytes", "next")
    if int(largest or 0) <= MAX_ENTRY_BYTES:
        return None
    index = keys.index
    below = await log.store.command("ZREVRANGEBYSCORE", index, offset, "-inf", "LIMIT", 0, 1)
    above = await log.store.command("ZRANGEBYSCORE", index, f"({offset}", "+inf", "LIMIT", 0, 1)
    if not below:
        return None  # in a segment, which is read in parts
    next_offset, bytes_above = _parse(above[0]) if above else (int(end), int(total))
    size = bytes_above - _parse(below[0])[1]
    if size <= MAX_ENTRY_BYTES:
        return None
    return LargeRecords(topic, partition, offset, -1, None, None, (), next_offset, size)


def _parse(row: bytes) -> tuple[int, int]:
    """Return the offset and the bytes of a row of the index."""
    offset, _, size, _ = row.split(b":")
    return int(offset), int(size)
