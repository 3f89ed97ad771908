"""Reading a range of a partition's stream in chunks of bounded size, on an executor.

Rules
- The sparse index says where about CHUNK_BYTES end; behind its last row little is left.
- XRANGE and the log's state travel together, so that a trim cannot pass unnoticed.
- Entries are given as Redis sent them: those of layout `record` as bytes, not yet parsed.
- Where a log can be seen to have an entry for every offset, offsets alone need no entry read.
"""

import logging
from collections.abc import Iterator

from korvet.errors import ErrorCode
from korvet.keys import Keys
from korvet.offsets import DENSE_MS, entry_id, split_id
from korvet.spark.catalog import Log, Range, lost, refuse
from korvet.spark.decode import Aborted
from korvet.spark.replies import Reply
from korvet.store.errors import CommandFailed
from korvet.store.sync import SyncStore

CHUNK_BYTES = 2 << 20
MOST_ENTRIES = 20_000
TAIL_ENTRIES = 1_000
"""So many where the index says nothing of sizes: behind its last row, where natives may stand."""
PAGE = 512

logger = logging.getLogger("korvet.spark")


class Scan:
    """Reads one range. `position` is behind the last entry given."""

    def __init__(
        self, store: SyncStore, keys: Keys, wanted: Range, *, fail_on_data_loss: bool = True
    ) -> None:
        self._store = store
        self._log = wanted.log
        self._names = keys.partition(wanted.log.topic, wanted.log.partition)
        self._end = wanted.end
        self._strict = fail_on_data_loss
        self.position = wanted.start

    def __iter__(self) -> Iterator[Reply]:
        for stop, most in self._steps():
            yield from self._until(stop, most)
        if self._log.is_batch and self.position < self._end:
            # The end may lie inside a batch, which is stored under its last offset.
            reply = self._read(self.position, "+", 1)
            if len(reply) and self._behind(reply.last_id) > self._end:
                yield reply

    def numbered(self) -> Range | None:
        """What there is of the range, if every offset in it is known to be a record's; else None.

        A dense log of single records without transactions, and so without markers, is as long as
        its offsets are many if none is missing. XINFO tells both at one moment."""
        if self._log.is_batch or self._log.mode != "dense":
            return None
        state = ("HMGET", self._names.log, "topic_id", "start", "stable")
        try:
            [topic_id, first, stable], flat = self._store.commands(
                [state, ("XINFO", "STREAM", self._names.stream)]
            )
        except CommandFailed:  # no entry, no stream
            return None
        self._check([topic_id, first], self.position)
        told = dict(zip(flat[::2], flat[1::2], strict=True))
        if stable is not None or not told[b"length"]:
            return None
        edges = [split_id(told[name][0]) for name in (b"first-entry", b"last-entry")]
        (low_ms, low), (high_ms, high) = edges
        # Ids ascend: between two dense ones all are.
        if low_ms != DENSE_MS or high_ms != DENSE_MS or told[b"length"] != high - low + 1:
            return None
        start = max(self.position, low)
        return Range(self._log, start, max(start, min(self._end, high + 1)))

    def _until(self, stop: int, most: int) -> Iterator[Reply]:
        """The entries from the position to before `stop`."""
        at = self.position
        while at < stop:
            reply = self._read(at, self._id(stop - 1), most)
            if len(reply):
                at = self.position = max(at, self._behind(reply.last_id))
                yield reply
            if len(reply) < most:
                break
        if not self._log.is_batch:
            self.position = max(self.position, stop)

    def _steps(self) -> Iterator[tuple[int, int]]:
        """Offsets to read up to, about CHUNK_BYTES apart, each with the most entries to ask for."""
        begun, base, last = self.position, -1, self.position
        while True:
            page = self._store.command(
                "ZRANGEBYSCORE", self._names.index, f"({begun}", f"({self._end}", "LIMIT", 0, PAGE
            )
            for member in page:
                offset, _, size, _ = map(int, member.split(b":"))
                base = size if base < 0 else base
                if size - base >= CHUNK_BYTES:
                    yield offset, MOST_ENTRIES
                    base, last = size, offset
                begun = offset
            if len(page) < PAGE:
                break
        if begun > last:
            yield begun, MOST_ENTRIES
        yield self._end, MOST_ENTRIES if self._log.is_batch else TAIL_ENTRIES

    def _read(self, start: int, last: str, most: int) -> Reply:
        entries = ("XRANGE", self._names.stream, self._id(start), last, "COUNT", most)
        state = ("HMGET", self._names.log, "topic_id", "start")
        found = None if self._log.is_batch else self._store.bulk(entries, [state])
        if found is None:
            rows, told = self._store.commands([entries, state])
            reply = Reply.of(rows)
        else:
            reply, [told] = Reply(found[0]), found[1]
        self._check(told, start)
        return reply

    def _check(self, state: list[bytes | None], at: int) -> None:
        topic_id, first = state
        if topic_id is None or first is None:
            refuse(self._log, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic_id.decode() != self._log.topic_id:
            refuse(self._log, ErrorCode.UNKNOWN_TOPIC_ID)
        elif int(first) > at:
            error = lost(self._log, at, self._end, int(first))
            if self._strict:
                raise error
            logger.warning("%s", error)

    def _id(self, offset: int) -> str:
        return entry_id(self._log.mode, self._log.bits, max(offset, 0))

    def _behind(self, raw_id: bytes) -> int:
        return behind(self._log, raw_id)


def aborted_in(store: SyncStore, keys: Keys, wanted: Range) -> list[Aborted]:
    """The transactions without effect that have a record in the range."""
    names = keys.partition(wanted.log.topic, wanted.log.partition)
    found: list[Aborted] = []
    low = f"({wanted.start}"
    while True:
        flat = store.command(
            "ZRANGEBYSCORE", names.aborted, low, "+inf", "WITHSCORES", "LIMIT", 0, PAGE
        )
        for member, marker in zip(flat[::2], flat[1::2], strict=True):
            producer_id, first, _ = map(int, member.split(b":"))
            if first < wanted.end:
                found.append(Aborted(producer_id, first, int(marker)))
        if len(flat) < 2 * PAGE:
            return found
        low = "(" + flat[-1].decode()


def behind(log: Log, raw_id: bytes) -> int:
    """The lowest offset behind an entry, whether or not the entry has one of its own."""
    milliseconds, sequence = split_id(raw_id)
    if log.mode != "time":
        return sequence + 1
    return (milliseconds << log.bits) + min(sequence + 1, 1 << log.bits)
