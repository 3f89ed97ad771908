"""Read a range of a partition's stream in chunks of bounded size, in a task.

Rules
- The sparse index gives the offsets at which chunks of about `chunk_bytes` end.
- Read the log start offset with each chunk: a trim during the scan is then detected. LeftRedis is
  raised if the records left Redis for segments.
- Request the next chunk before yielding one: Redis and Spark then work in parallel.
- Yield entries as Redis sent them; those of layout `record` as unparsed bytes.
- Foreign entries (added by XADD, not by a broker) are not in the index and may have any size. If
  the log has some, the number of entries per chunk follows the size of the last chunk.
- If the log has an entry for every offset, offsets can be read without reading entries.
"""

import logging
from collections.abc import Iterator
from itertools import chain

from korvet.base.errors import ErrorCode
from korvet.log.entry import DENSE_MS, OffsetMap, split_id
from korvet.scripts.call import Arg
from korvet.scripts.keys import Keys
from korvet.spark.decode.decoder import decoder_of
from korvet.spark.decode.layout_decoder import MAX_ENTRIES, TAIL_ENTRIES
from korvet.spark.decode.xrange_reply import XRangeReply
from korvet.spark.errors import LeftRedis
from korvet.spark.partitions import OffsetRange, data_lost_error, raise_if_gone
from korvet.store.errors import CommandFailed
from korvet.store.sync_store import SyncStore
from korvet.wire.segments import AbortedRow

FOREIGN_ENTRIES = 16
"""Entries in the first chunk of a log with foreign entries."""
INDEX_PAGE = 512

Command = tuple[Arg, ...]
ReadStep = tuple[int, int]

logger = logging.getLogger("korvet.spark")


class RangeScan:
    """Reads one range.

    `position` is the offset after the last entry that was yielded. No entry below `seen_end` can
    be missing: a log that ends above it lost nothing of the range so far.
    """

    def __init__(
        self, store: SyncStore, keys: Keys, wanted: OffsetRange, *, fail_on_data_loss: bool = True
    ) -> None:
        self._store = store
        self._log = wanted.log
        self._layout = decoder_of(wanted.log)
        self._names = wanted.log.handle(keys)
        self._end = wanted.end
        self._strict = fail_on_data_loss
        self._foreign_count = 0
        """Entries per chunk if the log has foreign entries, else 0."""
        self._places = OffsetMap(wanted.log.mode, wanted.log.bits)
        self.position = self.seen_end = wanted.start
        self.epoch = wanted.log.epoch
        """The leader epoch of the log when it was read."""

    def __iter__(self) -> Iterator[XRangeReply]:
        try:
            yield from self._replies()
        finally:
            self._store.forget_bulk()

    def _replies(self) -> Iterator[XRangeReply]:
        """Yield the entries chunk by chunk, with the next chunk already requested."""
        self._read_counters()
        steps: Iterator[ReadStep] = self._steps()
        step = self._next(steps)
        while step is not None:
            stop, count = step
            at = self.position
            reply = self._receive(at, stop, count)
            if len(reply):
                self._adapt_foreign_count(reply)
                at = self.seen_end = max(at, self._next_offset(reply.last_id))
            if len(reply) < count and not self._layout.holds_batches:
                at = max(at, stop)
            self.position = at
            if len(reply) == count:
                # The step was cut off by COUNT: there may be more entries before its end.
                steps = chain([(stop, self._foreign_count or count)], steps)
            step = self._next(steps)
            if len(reply):
                yield reply
        if self._layout.holds_batches and self.position < self._end:
            # The end may be inside a batch, whose entry id is its last offset.
            self._ask(self.position, None, 1)
            reply = self._receive(self.position, None, 1)
            if len(reply) and self._next_offset(reply.last_id) > self._end:
                self.seen_end = self._end
                yield reply

    def dense_range(self) -> OffsetRange | None:
        """Return the part of the range in the log if every offset in it has a record, else None.

        A dense log of layout `record` without transactions has no markers. It has no gap if its
        length equals the distance of its first and last offset. XINFO returns all in one reply.
        """
        if self._layout.holds_batches or self._log.mode != "dense":
            return None
        state = ("HMGET", self._names.log, "topic_id", "start", "local_start", "epoch", "stable")
        try:
            # The state last: records that leave Redis in between are then noticed.
            flat, [*bounds, stable] = self._store.commands(
                [("XINFO", "STREAM", self._names.stream), state]
            )
        except CommandFailed:  # an empty log has no stream
            return None
        self._check(bounds, self.position)
        info = dict(zip(flat[::2], flat[1::2], strict=True))
        if stable is not None or not info[b"length"]:
            return None
        edges = [split_id(info[name][0]) for name in (b"first-entry", b"last-entry")]
        (low_ms, low), (high_ms, high) = edges
        # Ids ascend: if the first and the last are dense, all are.
        if low_ms != DENSE_MS or high_ms != DENSE_MS or info[b"length"] != high - low + 1:
            return None
        self.seen_end = high + 1
        start = max(self.position, low)
        return OffsetRange(self._log, start, max(start, min(self._end, high + 1)))

    def _steps(self) -> Iterator[ReadStep]:
        """Yield the end offset of each chunk and the max entries to read for it."""
        begun, base, last = self.position, -1, self.position
        while True:
            page = self._store.command(
                "ZRANGEBYSCORE",
                self._names.index,
                f"({begun}",
                f"({self._end}",
                "LIMIT",
                0,
                INDEX_PAGE,
            )
            for member in page:
                offset, _, size, _ = map(int, member.split(b":"))
                base = size if base < 0 else base
                if size - base >= self._layout.chunk_bytes:
                    yield offset, self._foreign_count or MAX_ENTRIES
                    base, last = size, offset
                begun = offset
            if len(page) < INDEX_PAGE:
                break
        if begun > last:
            yield begun, self._foreign_count or MAX_ENTRIES
        yield self._end, self._foreign_count or self._layout.tail_entries

    def _read_counters(self) -> None:
        """Set the log's map, and `_foreign_count` if the stream has more entries than it counted.

        Markers are counted; as many foreign entries as markers were trimmed stay undetected.
        """
        counters = ("HMGET", self._names.log, "entries", "start_records", "shifts")
        length, counted = self._store.commands([("XLEN", self._names.stream), counters])
        appended, gone = (int(each or 0) for each in counted[:2])
        self._places = OffsetMap(self._log.mode, self._log.bits, counted[2])
        if length > appended - gone and not self._layout.holds_batches:
            self._foreign_count = FOREIGN_ENTRIES

    def _adapt_foreign_count(self, reply: XRangeReply) -> None:
        """Set `_foreign_count` to the number of entries of this size in a chunk."""
        if self._foreign_count and reply.size:
            fit = self._layout.chunk_bytes * len(reply) // reply.size
            self._foreign_count = max(1, min(fit, 2 * self._foreign_count, TAIL_ENTRIES))

    def _next(self, steps: Iterator[ReadStep]) -> ReadStep | None:
        """Request and return the next step that ends above the position, or None."""
        step = next((each for each in steps if each[0] > self.position), None)
        if step is not None:
            self._ask(self.position, *step)
        return step

    def _ask(self, start: int, stop: int | None, count: int) -> None:
        """Request the entries from `start` up to `stop` (exclusive)."""
        self._store.ask_bulk(*self._commands(start, stop, count))

    def _receive(self, start: int, stop: int | None, count: int) -> XRangeReply:
        """Return the reply to the last request."""
        found = self._store.bulk_reply()
        if found is None:
            entries, states = self._commands(start, stop, count)
            rows, state = self._store.commands([entries, *states])
            reply = XRangeReply.of(rows)
        else:
            raw, [state] = found
            reply = self._layout.parse_reply(raw)
        self._check(state, start)
        reply.places = self._places
        return reply

    def _commands(self, start: int, stop: int | None, count: int) -> tuple[Command, list[Command]]:
        last = "+" if stop is None else self._places.id(max(stop - 1, 0))
        return (
            ("XRANGE", self._names.stream, self._places.id(max(start, 0)), last, "COUNT", count),
            [("HMGET", self._names.log, "topic_id", "start", "local_start", "epoch")],
        )

    def _check(self, state: list[bytes | None], at: int) -> None:
        topic_id, first, local_start, epoch = state
        self.epoch = int(epoch or 0)
        if topic_id is None or first is None:
            raise_if_gone(self._log, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic_id.decode() != self._log.topic_id:
            raise_if_gone(self._log, ErrorCode.UNKNOWN_TOPIC_ID)
        elif int(first) > at:
            error = data_lost_error(self._log, at, self._end, int(first))
            if self._strict:
                raise error
            logger.warning("%s", error)
        if local_start is not None and int(local_start) > at:
            raise LeftRedis(int(local_start))

    def _next_offset(self, raw_id: bytes) -> int:
        """Return the lowest offset above an entry id."""
        return self._places.offset_after(*split_id(raw_id))


def aborted_transactions(store: SyncStore, keys: Keys, wanted: OffsetRange) -> list[AbortedRow]:
    """Return the aborted transactions that have records in the range."""
    names = wanted.log.handle(keys)
    found: list[AbortedRow] = []
    low = f"({wanted.start}"
    while True:
        flat = store.command(
            "ZRANGEBYSCORE", names.aborted_txns, low, "+inf", "WITHSCORES", "LIMIT", 0, INDEX_PAGE
        )
        rows = [*map(AbortedRow.parse, flat[::2], flat[1::2])]
        found += (row for row in rows if row.first < wanted.end)
        # A transaction that was aborted later began at or above the last row's `stable`.
        if len(rows) < INDEX_PAGE or rows[-1].stable >= wanted.end:
            return found
        low = "(" + flat[-1].decode()
