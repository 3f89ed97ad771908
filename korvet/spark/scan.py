"""Reading a range of a partition's stream in chunks of bounded size, on an executor.

Rules
- The sparse index says where about CHUNK_BYTES end; behind its last row little is left.
- XRANGE and the log's state travel together, so that a trim cannot pass unnoticed.
- The next chunk is asked for before one is given, so that Redis and Spark work at the same time.
- Entries are given as Redis sent them: those of layout `record` as bytes, not yet parsed.
- Native entries may be of any size, which the index does not know: where there are some, the next
  chunk is as many entries as those of the last one make it, and grows slowly.
- Where a log can be seen to have an entry for every offset, offsets alone need no entry read.
"""

import logging
from collections.abc import Iterator
from itertools import chain

from korvet.errors import ErrorCode
from korvet.keys import Keys
from korvet.log.entry_id import DENSE_MS, entry_id, split_id
from korvet.scripts.call import Arg
from korvet.spark.aborted import Aborted
from korvet.spark.catalog import Log, Range, lost, refuse
from korvet.spark.replies import Reply
from korvet.store.errors import CommandFailed
from korvet.store.raw_reply import parsed
from korvet.store.sync_store import SyncStore

CHUNK_BYTES = {"batch": 2 << 20, "record": 1 << 20}
"""What Redis, Python and Java each still have in their caches when the next one is asked for."""
MOST_ENTRIES = 20_000
TAIL_ENTRIES = 1_000
"""So many where the index says nothing of sizes: behind its last row, where natives may stand."""
NATIVE_ENTRIES = 16
"""So many at first where natives stand."""
PAGE = 512

Command = tuple[Arg, ...]
Step = tuple[int, int]

logger = logging.getLogger("korvet.spark")


class Scan:
    """Reads one range. `position` is behind the last entry given; before `told` all is known."""

    def __init__(
        self, store: SyncStore, keys: Keys, wanted: Range, *, fail_on_data_loss: bool = True
    ) -> None:
        self._store = store
        self._log = wanted.log
        self._names = keys.partition(wanted.log.topic, wanted.log.partition)
        self._end = wanted.end
        self._strict = fail_on_data_loss
        self._natives = 0
        """How many entries to ask for where natives stand; 0 where none do."""
        self.position = self.told = wanted.start

    def __iter__(self) -> Iterator[Reply]:
        try:
            yield from self._replies()
        finally:
            self._store.forget_bulk()

    def _replies(self) -> Iterator[Reply]:
        """The entries, chunk by chunk. While one is in use, Redis is at work on the next."""
        steps: Iterator[Step] = self._steps()
        step = self._next(steps)
        while step is not None:
            stop, most = step
            at = self.position
            reply = self._answered(at, stop, most)
            if len(reply):
                self._measure(reply)
                at = self.told = max(at, self._behind(reply.last_id))
            if len(reply) < most and not self._log.is_batch:
                at = max(at, stop)
            self.position = at
            if len(reply) == most:
                # There may be more before its end.
                steps = chain([(stop, self._natives or most)], steps)
            step = self._next(steps)
            if len(reply):
                yield reply
        if self._log.is_batch and self.position < self._end:
            # The end may lie inside a batch, which is stored under its last offset.
            self._ask(self.position, None, 1)
            reply = self._answered(self.position, None, 1)
            if len(reply) and self._behind(reply.last_id) > self._end:
                self.told = self._end
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
        self.told = high + 1
        start = max(self.position, low)
        return Range(self._log, start, max(start, min(self._end, high + 1)))

    def _steps(self) -> Iterator[Step]:
        """Offsets to read up to, about CHUNK_BYTES apart, each with the most entries to ask for."""
        begun, base, last = self.position, -1, self.position
        chunk = CHUNK_BYTES["batch" if self._log.is_batch else "record"]
        self._look_for_natives()
        while True:
            page = self._store.command(
                "ZRANGEBYSCORE", self._names.index, f"({begun}", f"({self._end}", "LIMIT", 0, PAGE
            )
            for member in page:
                offset, _, size, _ = map(int, member.split(b":"))
                base = size if base < 0 else base
                if size - base >= chunk:
                    yield offset, self._natives or MOST_ENTRIES
                    base, last = size, offset
                begun = offset
            if len(page) < PAGE:
                break
        if begun > last:
            yield begun, self._natives or MOST_ENTRIES
        yield self._end, self._natives or (MOST_ENTRIES if self._log.is_batch else TAIL_ENTRIES)

    def _look_for_natives(self) -> None:
        """`_natives` says whether there are entries that were never counted. Markers were; as many
        natives as there are markers that have left the log stay unseen."""
        if self._log.is_batch:
            return
        counters = ("HMGET", self._names.log, "entries", "start_records")
        length, counted = self._store.commands([("XLEN", self._names.stream), counters])
        appended, gone = (int(each or 0) for each in counted)
        if length > appended - gone:
            self._natives = NATIVE_ENTRIES

    def _measure(self, reply: Reply) -> None:
        """`_natives` is how many entries like these are a chunk."""
        if self._natives and reply.size:
            fit = CHUNK_BYTES["record"] * len(reply) // reply.size
            self._natives = max(1, min(fit, 2 * self._natives, TAIL_ENTRIES))

    def _next(self, steps: Iterator[Step]) -> Step | None:
        """The first step that leads beyond the position, asked for; None if there is none."""
        step = next((each for each in steps if each[0] > self.position), None)
        if step is not None:
            self._ask(self.position, *step)
        return step

    def _ask(self, start: int, stop: int | None, most: int) -> None:
        """The entries from `start` to before `stop` are asked for."""
        self._store.ask_bulk(*self._commands(start, stop, most))

    def _answered(self, start: int, stop: int | None, most: int) -> Reply:
        """What Redis says to what was asked last."""
        found = self._store.bulk_reply()
        if found is None:
            entries, states = self._commands(start, stop, most)
            rows, told = self._store.commands([entries, *states])
            reply = Reply.of(rows)
        else:
            raw, [told] = found
            reply = Reply.of(parsed(raw)) if self._log.is_batch else Reply(raw)
        self._check(told, start)
        return reply

    def _commands(self, start: int, stop: int | None, most: int) -> tuple[Command, list[Command]]:
        last = "+" if stop is None else self._id(stop - 1)
        return (
            ("XRANGE", self._names.stream, self._id(start), last, "COUNT", most),
            [("HMGET", self._names.log, "topic_id", "start")],
        )

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
            "ZRANGEBYSCORE", names.aborted_txns, low, "+inf", "WITHSCORES", "LIMIT", 0, PAGE
        )
        stable = wanted.start
        for member, marker in zip(flat[::2], flat[1::2], strict=True):
            producer_id, first, stable = map(int, member.split(b":"))
            if first < wanted.end:
                found.append(Aborted(producer_id, first, int(marker)))
        # Whatever was aborted later began at or behind the last row's `stable`.
        if len(flat) < 2 * PAGE or stable >= wanted.end:
            return found
        low = "(" + flat[-1].decode()


def behind(log: Log, raw_id: bytes) -> int:
    """The lowest offset behind an entry, whether or not the entry has one of its own."""
    milliseconds, sequence = split_id(raw_id)
    if log.mode != "time":
        return sequence + 1
    return (milliseconds << log.bits) + min(sequence + 1, 1 << log.bits)
