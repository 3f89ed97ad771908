"""Rebuild a partition's manifest from the objects in the remote store.

Rules
- The footer of each object is read and verified; its header must match the object's name.
- Two objects may have the same offsets: a crash left one that no manifest named. The one that
  leads to the highest offset is used, of two such the one written later.
- If the only object with some offsets is corrupt, the manifest keeps it: reads of these offsets
  fail, as before the restore, and skip no records silently.
"""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from korvet.remote_log.manifest import object_name
from korvet.remote_log.store import SegmentStore
from korvet.wire.segments import (
    TRAILER_BYTES,
    CorruptSegment,
    SegmentHeader,
    footer_size,
    read_footer,
)

Row = tuple[int, int, int, int, str]
"""First and last offset, records, bytes of the object, and the end of the manifest's row."""


class ObjectHeader(msgspec.Struct, frozen=True):
    """An object of a partition; `header` is None if it is corrupt, for the `reason`."""

    name: str
    first: int
    size: int
    header: SegmentHeader | None
    reason: str = ""

    @property
    def id(self) -> str:
        return self.name.rpartition("-")[2].removesuffix(".segment")


class Chain(msgspec.Struct, frozen=True):
    """The segments of a partition, in order; `holes` are ranges of offsets without one."""

    rows: list[Row]
    holes: list[tuple[int, int]]
    corrupt: list[ObjectHeader]

    @property
    def end(self) -> int:
        """The offset after the last segment, -1 without segments."""
        return self.rows[-1][1] + 1 if self.rows else -1


async def list_objects(
    segments: SegmentStore,
    cluster_id: str,
    topic_id: str,
    partition: int,
    limit: asyncio.Semaphore,
) -> list[ObjectHeader]:
    """Return the partition's objects with their headers. Raises RemoteStorageError.

    `limit` bounds the reads in flight.
    """
    async with limit:
        names = await segments.listing(f"{cluster_id}/{topic_id}/{partition}")

    async def read(name: str, size: int) -> ObjectHeader | None:
        first, _, _ = name.rpartition("/")[2].partition("-")
        if not first.isdecimal() or not name.endswith(".segment"):
            return None
        async with limit:
            try:
                header = await _header(segments, name, size)
                where = (cluster_id, topic_id, partition)
                if _name_of(header, where) != name:
                    raise CorruptSegment("the header is that of another object")
            except CorruptSegment as error:
                return ObjectHeader(name, int(first), size, None, str(error))
        return ObjectHeader(name, int(first), size, header)

    found = await asyncio.gather(*(read(name, size) for name, _, size in names))
    return [each for each in found if each is not None]


async def _header(segments: SegmentStore, name: str, size: int) -> SegmentHeader:
    if size < TRAILER_BYTES:
        raise CorruptSegment("not a segment: too short")
    footer = footer_size(await segments.get(name, size - TRAILER_BYTES, size))
    if footer > size:
        raise CorruptSegment("the footer's length differs")
    header = read_footer(await segments.get(name, size - footer, size)).header
    if header.bytes + footer != size:
        raise CorruptSegment(f"{size - footer} bytes of batches in place of {header.bytes}")
    return header


def _name_of(header: SegmentHeader, where: tuple[str, str, int]) -> str:
    if (header.cluster_id, header.topic_id, header.partition) != where:
        return ""
    return object_name(*where, header.first, header.id)


def build_chain(objects: Iterable[ObjectHeader], start: int, tiered: int) -> Chain:
    """Return the manifest of the objects at or above the log start.

    `tiered` is the known end of what was copied; objects above it may exist.
    """
    found = sorted(objects, key=lambda each: each.first)
    sound = [each.header for each in found if each.header and each.header.last >= start]
    corrupt = [each for each in found if each.header is None]
    sizes = {each.header.id: each.size for each in found if each.header}
    rows = [_row(each, sizes[each.id]) for each in _longest(sound)]
    begin = start
    if rows and rows[0][0] > start:
        # Retention may have removed the first segments after the snapshot: no hole then.
        begin = min([rows[0][0], *(each.first for each in corrupt)])
    holes = _holes(rows, begin, tiered)
    return Chain(_with_corrupt(rows, holes, corrupt), holes, corrupt)


def _longest(headers: Sequence[SegmentHeader]) -> list[SegmentHeader]:
    """Return headers of segments that follow one another; `headers` are in order of `first`."""
    best: dict[int, tuple[int, int, SegmentHeader]] = {}
    for each in reversed(headers):
        reach = best[each.last + 1][0] if each.last + 1 in best else each.last
        known = best.get(each.first)
        if known is None or (reach, each.created_ms) > known[:2]:
            best[each.first] = (reach, each.created_ms, each)
    chain: list[SegmentHeader] = []
    for first in sorted(best):
        if not chain or first > chain[-1].last:
            chain.append(best[first][2])
    return chain


def _row(header: SegmentHeader, size: int) -> Row:
    tail = f"{size - header.bytes}:{header.max_timestamp}:{header.id}"
    return (header.first, header.last, header.records, size, tail)


def _holes(rows: Sequence[Row], begin: int, tiered: int) -> list[tuple[int, int]]:
    """Return the ranges, both ends inclusive, from `begin` to `tiered` that no segment has."""
    at, found = begin, []
    for row in rows:
        if row[0] > at:
            found.append((at, row[0] - 1))
        at = row[1] + 1
    if tiered > at:
        found.append((at, tiered - 1))
    return found


def _with_corrupt(
    rows: Sequence[Row], holes: Sequence[tuple[int, int]], corrupt: Sequence[ObjectHeader]
) -> list[Row]:
    by_first = {each.first: each for each in corrupt}
    kept = [
        (first, last, 0, each.size, f"{each.size}:-1:{each.id}")
        for first, last in holes
        if (each := by_first.get(first)) is not None
    ]
    return sorted([*rows, *kept])
