"""Read a log's state and its entries: the commands, and the entries in the replies.

Rules
- XRANGE counts entries, not bytes: COUNT comes from the expected size of entries. Its end comes
  from the sparse index if the largest entry could make that far too much (`size_estimates`).
- If no sizes are known, or they are stale, the state and the index are read first, then the
  entries; at the end of the log, the state and FEW_ENTRIES together.
"""

import asyncio
from collections.abc import Sequence
from time import time
from typing import Any

from korvet.log.entry import LAST, OffsetMap, split_id
from korvet.log.layouts import layout_of
from korvet.log.read_cache import ReadCache
from korvet.log.read_result import ReadRequest, ReadResult
from korvet.log.recent_states import BOUNDS, STATE
from korvet.log.size_estimates import count_for, index_rows_for, range_end
from korvet.store.calls import ReadCalls
from korvet.wire.records import MAX_SPAN

MAX_RECORD_BYTES = 64 << 20
"""Bytes of a foreign entry above which it is skipped, or max.message.bytes if that is more: the
default limits of clients are near 100 MB."""
LARGEST, CLEANED, LOCAL_START = STATE[6], STATE[8], STATE[9]


class EntriesQuery:
    """Sends the commands of one read."""

    def __init__(
        self, request: ReadRequest, store: ReadCalls, cache: ReadCache, max_entries: int
    ) -> None:
        self.key = request.topic.partition(request.partition)
        self.max_entries = max_entries
        self._where = request.topic, request.partition
        self.policy = request.topic.policy
        self._store = store
        self._cache = cache
        self._sizes = cache.sizes

    @property
    def has_times(self) -> bool:
        """Return whether offsets have the time of the append: most begin in a gap."""
        return self.policy.offset_mode == "time"

    @property
    def places(self) -> OffsetMap:
        """Return the log's ids and offsets, as of the state that was read last."""
        return self._cache.offset_map(*self._where)

    def average(self, offset: int) -> float:
        """Return the expected size of an entry from the offset on."""
        return self._sizes.average(*self._where, offset)

    def first_count(self, offset: int, max_bytes: int) -> int:
        """Return how many entries to ask for together with the state; 0: read the state first."""
        known = self._sizes.get(*self._where)
        if known is None:
            return 0
        count = count_for(max_bytes, self.average(offset), self.max_entries)
        if known.is_stale or known.may_exceed(count, max_bytes):
            at_end = offset >= known.end
            return min(count, known.count_at_end(max_bytes)) if at_end else 0
        return count

    def state(self) -> tuple[str, ...]:
        """Return the command that reads the log's state."""
        return "HMGET", self.key.log, *STATE

    def entries(self, offset: int, count: int, last: str = "+") -> tuple[str | int, ...]:
        """Return the command that reads entries from the offset on."""
        return "XRANGE", self.key.stream, self.places.start(offset), last, "COUNT", count

    def local_start(self) -> tuple[str, ...]:
        """Return the command that reads from which offset on Redis has the records."""
        return "HGET", self.key.log, LOCAL_START

    def bounds(self) -> tuple[str, ...]:
        """Return the command that reads which topic has the log, its start and its local start."""
        return "HMGET", self.key.log, *BOUNDS

    def submit_index(self, offset: int, max_bytes: int) -> "asyncio.Future[Any]":
        """Read the rows of the sparse index above an offset."""
        return self._store.submit_command(
            "ZRANGEBYSCORE",
            self.key.index,
            f"({offset}",
            "+inf",
            "LIMIT",
            0,
            index_rows_for(max_bytes),
        )

    async def cleaned(self) -> bytes | None:
        """Return up to which offset the log is cleaned by now."""
        cleaned: bytes | None = await self._store.submit_command("HGET", self.key.log, CLEANED)
        return cleaned

    async def read(
        self,
        offset: int,
        max_bytes: int,
        average: float,
        max_entries: int,
        index: Sequence[bytes] | None = None,
    ) -> tuple[list[Any], bool]:
        """Read entries, up to an offset of the index if COUNT alone could give far too much.

        Returns rows, and whether there may be more of them.
        """
        known, end = self._sizes.get(*self._where), None
        count = count_for(max_bytes, average, max_entries)
        if known is None or known.may_exceed(count, max_bytes):
            if index is None:
                index = await self.submit_index(offset, max_bytes)
            end = range_end(index, max_bytes)
        submit, last = self._store.submit_command, "+" if end is None else self.places.id(end)
        rows: list[Any] = await submit(*self.entries(offset, count, last))
        if not rows and end is not None:  # another client has trimmed the stream
            count = 1
            rows = await submit(*self.entries(offset, count))
        return rows, end is not None or len(rows) == count

    def is_numbered(self, raw_id: bytes, end: int) -> bool:
        """Return whether an entry's offset is below the log end, as every numbered one's is."""
        offset = self.places.offset(*split_id(raw_id))
        return offset is not None and offset < end

    def offset_after(self, rows: Sequence[Any]) -> int:
        """Return the offset after rows without records; -1 if none follows."""
        return self.places.offset_after(*split_id(rows[-1][0]))


def take_rows(
    rows: Sequence[Any], offset: int, request: ReadRequest, result: ReadResult, cache: ReadCache
) -> bool:
    """Add the entries that fit to the result. Returns whether one did not.

    Foreign entries without an offset or records are counted and left out, and so are records that
    no client takes. A large record below that bound is sent as the only one, whatever the client
    asks for. Entries of layout `record` above the log end wait until they are numbered.
    """
    topic, partition, entries = request.topic, request.partition, result.entries
    layout, policy = layout_of(topic), topic.policy
    parse, is_time, bits = layout.parse_entry, policy.offset_mode == "time", policy.offset_bits
    places = cache.offset_map(topic, partition)
    is_plain = is_time and places.is_natural
    end = LAST if layout.holds_batches else result.end
    has_tail = layout.has_tail and not request.raw
    max_bytes = max(MAX_RECORD_BYTES, policy.max_message_bytes)
    had, now_ms, full = len(entries), int(time() * 1000), False
    for raw_id, fields in rows:
        milliseconds, sequence = split_id(raw_id)
        last: int | None
        if is_plain and sequence < 1 << bits:
            last = (milliseconds << bits) | sequence
        else:
            last = places.offset(milliseconds, sequence)
        if last is not None and last >= end:
            full = True
            break
        if not is_time or milliseconds >= LAST:
            milliseconds = now_ms
        entry = None if last is None else parse(last, milliseconds, fields, request.decompress)
        if entry is None or last is None:
            cache.skip(topic, partition, raw_id)
            continue
        if entry.size > max_bytes:
            cache.skip(topic, partition, raw_id, entry.size)
            continue
        if has_tail and layout.last_record(entry) < offset:
            continue
        if entries and (
            result.size + entry.size > request.max_bytes or last - entries[0].first > MAX_SPAN
        ):
            full = True
            break
        entries.append(entry)
        result.size += entry.size
    if entries:
        result.end = max(result.end, entries[-1].last + 1)
        cache.learn_entries(topic, partition, offset, entries[had:], result.end)
    return full
