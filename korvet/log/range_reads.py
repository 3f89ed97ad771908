"""Reads of large batches for sequential readers: the next one begins before it is asked for.

A range is begun by a fetch, or ahead of it: once a reader has continued where it had read to, the
range behind is read while the client takes what it got. Redis, broker and client then work at the
same time.

Rules
- A range serves one read from its offset. Whether it may, its state decides if that was submitted
  within FRESH_S of the read's beginning, else a newer one (`recent_states`).
- A range brings a state with it unless a young one is known. The log's bounds come with each range:
  they show a deletion, or a new start, since that state.
- Ranges read ahead have at most AHEAD_BYTES. One that was not asked for within IDLE_S gives way to
  others; a younger one never does, so that no reader drops what another one needs.
- Those of an earlier connection are dropped: another server may have less.

Batches below a log's end are sent from where they were received
- Only if they are not cached, and fill the fetch (`ReadCache.is_catch_up`).
- The state is read before the entries; topic id, start and local start after them, in one write.
- What needs a look at each entry, or another read, is left to the caller: rows, or nothing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from time import monotonic
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from korvet.log.batch_reply import Batches, BatchReply
from korvet.log.entries_query import EntriesQuery
from korvet.log.leader_epochs import is_behind
from korvet.log.read_cache import ReadCache
from korvet.log.read_result import Ranges, ReadRequest
from korvet.log.recent_states import FRESH_S, STATE, Fields, RecentState, RecentStates
from korvet.store.calls import ReadCalls
from korvet.store.errors import StoreUnavailable

AHEAD_BYTES = 8 << 20
"""Bytes of ranges that are read ahead."""
LARGEST_AHEAD = 2 << 20
"""Bytes of a read above which the next one is not read ahead."""
IDLE_S = 0.2
PAUSE_S = 1.0
"""Seconds without reads ahead after most of them were dropped unused."""
MAX_RANGES = 10_000


class Range(msgspec.Struct, eq=False):
    """A range in flight, or one that no fetch has asked for yet."""

    request: ReadRequest
    reply: BatchReply
    count: int
    """The most entries that Redis returns."""
    sent: "asyncio.Future[None]"
    submitted_at: float
    connection_epoch: int
    size: int = 0
    """Bytes that count as read ahead."""
    state: RecentState | None = None
    """The log's state before the entries; None if it has not arrived, or is of another topic."""

    @property
    def is_read(self) -> bool:
        """Return whether the replies have arrived."""
        return self.sent.done() and not self.sent.cancelled() and self.sent.exception() is None


class RangeRead(NamedTuple):
    """A range that has arrived."""

    range: Range
    fields: Fields
    """Of the log's state: it may be newer than the range's."""


@dataclass(eq=False, repr=False)
class RangeReads:
    """The ranges of one store that are being read, or read ahead."""

    store: Ranges
    calls: ReadCalls
    cache: ReadCache
    states: RecentStates
    max_entries: int
    connection_epoch: Callable[[], int]
    _: KW_ONLY
    reads_ahead: bool

    def __post_init__(self) -> None:
        self.hits = 0
        """Reads whose range was read ahead."""
        self._ranges: OrderedDict[tuple[str, int, int], Range] = OrderedDict()
        self._ahead_bytes = 0
        self._hits_before = 0
        """Hits before ranges were dropped last."""
        self._paused_until = 0.0

    def begin(self, request: ReadRequest) -> Range | None:
        """Return the range from the request's offset on: one that was begun, or a new one.

        None if the records must be read in another way.
        """
        key = (request.topic.id, request.partition, request.offset)
        found = self._ranges.get(key)
        if found is not None and request.batches:
            if found.connection_epoch == self.connection_epoch() and not _has_failed(found):
                self.hits += found.size > 0
                return found
            self._drop(key)
        return self._submit(request)

    def _submit(self, request: ReadRequest, *, ahead: bool = False) -> Range | None:
        if not is_catch_up(request, request.offset, self.cache):
            return None
        query = EntriesQuery(request, self.calls, self.cache, self.max_entries)
        count = query.first_count(request.offset, request.max_bytes)
        if not count:
            return None
        bits = query.policy.offset_bits if query.has_times else None
        state = self.states.young(request.topic, request.partition)
        reply = BatchReply(count, query.average(request.offset), bits, with_state=state is None)
        if ahead and not self._make_room(reply.size):
            return None
        submitted_at, epoch = monotonic(), self.connection_epoch()
        commands = [query.entries(request.offset, count), query.bounds()]
        if state is None:
            commands.insert(0, query.state())
        sent = self.store.submit_range(query.key.stream, commands, reply)
        if sent is None:
            return None
        range_ = Range(request, reply, count, sent, submitted_at, epoch, state=state)
        if ahead:
            range_.size = reply.size
            self._ahead_bytes += range_.size
        self._ranges[request.topic.id, request.partition, request.offset] = range_
        sent.add_done_callback(lambda _: self._note_read(range_))
        if len(self._ranges) > MAX_RANGES:
            self._drop(next(iter(self._ranges)))
        return range_

    def _note_read(self, range_: Range) -> None:
        """Keep the state that came with the entries: other fetches use it too."""
        if not range_.is_read:
            self.forget(range_)
            return
        fields, where = range_.reply.state, (range_.request.topic, range_.request.partition)
        if len(fields) == len(STATE):
            range_.state = self.states.keep(*where, fields, range_.submitted_at)
            if range_.state is not None:
                self.cache.learn_state(*where, range_.state)

    async def read(self, request: ReadRequest) -> "RangeRead | None":
        """Return the range from the request's offset on, and fields of a state that it may use.

        None if the records must be read in another way.
        """
        began = monotonic()
        range_ = self.begin(request)
        if range_ is None:
            return None
        try:
            # Other fetches may wait for the range too: one that is cancelled must not cancel it.
            await asyncio.shield(range_.sent)
        except StoreUnavailable:
            return None
        state = self.state_for(range_, began)
        if state is not None:
            return RangeRead(range_, state.fields)
        return RangeRead(range_, await self.states.read(request.topic, request.partition))

    def state_for(self, range_: Range, began: float) -> RecentState | None:
        """Return a state that a read which began then may use; None: read it."""
        state = range_.state
        if state is not None and state.submitted_at > began - FRESH_S:
            return state
        return self.states.fresh(range_.request.topic, range_.request.partition)

    def take(self, range_: Range, request: ReadRequest, state: RecentState) -> Batches | None:
        """Return the range's batches for the request; None if its entries must be looked at.

        The reader's next range begins.
        """
        found = find_batches(range_.reply, request, state)
        if found is None:
            return None
        self.forget(range_)
        topic, partition, cache = request.topic, request.partition, self.cache
        follows = cache.sizes.was_read_to(topic, partition, request.offset)
        cache.learn_range(topic, partition, found, state.end)
        if follows and self.reads_ahead and request.max_bytes <= LARGEST_AHEAD:
            key = (topic.id, partition, found.next)
            if key not in self._ranges:
                self._submit(replace(request, offset=found.next), ahead=True)
        return found

    def forget(self, range_: Range) -> None:
        """Drop the range: it is used, or of no use."""
        key = (range_.request.topic.id, range_.request.partition, range_.request.offset)
        if self._ranges.get(key) is range_:
            self._drop(key)

    def _drop(self, key: tuple[str, int, int]) -> None:
        self._ahead_bytes -= self._ranges.pop(key).size

    def _make_room(self, size: int) -> bool:
        """Return whether that many bytes can be read ahead; drop what readers have left."""
        if self._ahead_bytes + size <= AHEAD_BYTES:
            return True
        now = monotonic()
        if now < self._paused_until:
            return False
        left = [
            key
            for key, each in self._ranges.items()
            if each.size and each.submitted_at < now - IDLE_S
        ]
        for key in left:
            self._drop(key)
        if left:
            if len(left) > self.hits - self._hits_before:
                self._paused_until = now + PAUSE_S
            self._hits_before = self.hits
        return self._ahead_bytes + size <= AHEAD_BYTES


def _has_failed(range_: Range) -> bool:
    return range_.sent.done() and not range_.is_read


def is_catch_up(request: ReadRequest, offset: int, cache: ReadCache) -> bool:
    """Return whether large batches are expected that are to be read from Redis."""
    topic, policy = request.topic, request.topic.policy
    return (
        request.batches
        and policy.storage_format == "batch"
        and policy.offset_mode != "bytes"
        and not policy.compact
        and not policy.log_append_time
        and cache.is_catch_up(topic, request.partition, offset, request.max_bytes)
    )


def find_batches(reply: BatchReply, request: ReadRequest, state: RecentState) -> Batches | None:
    """Return the batches to send as they are; None if the entries must be looked at.

    The state was read before the entries, or is newer.
    """
    offset = request.offset
    if not reply.has(request.topic.id, offset) or offset < max(state.start, reply.local_start):
        return None
    if request.committed and state.stable is not None:
        return None
    if is_behind(request.leader_epoch, state.epoch):
        return None
    found = reply.take(offset, request.max_bytes, state.epoch)
    if found is None or 2 * found.size < request.max_bytes:
        return None
    # A transaction that began at or above the end in the state may be open.
    return None if request.committed and found.next > state.end else found
