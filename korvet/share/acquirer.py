"""Acquire records of one partition for a member of a share group.

Rules
- Read the log from where the group's next records are, then let share.acquire decide which of the
  records read the member gets. The script knows the group's state; it does not read the log.
- The place to read from is remembered. A wrong place costs a call and does no harm: the script
  takes only what is available, and answers with the right place.
- Within one process, members of a group read a partition one after another: otherwise all would
  read the same records, and one would get them.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from korvet.config.values import Settings
from korvet.errors import ErrorCode
from korvet.fetch.record_format import encode_records
from korvet.groups.share_group import ShareGroupConfig
from korvet.keys import Keys
from korvet.log.layouts import layout_of
from korvet.log.read_request import ReadRequest
from korvet.log.read_result import ReadResult
from korvet.log.reader import LogReader
from korvet.scripts import share
from korvet.scripts.share import AcquireReply
from korvet.scripts.signals import Signal
from korvet.share.dead_letters import DeadLetters
from korvet.share.ranges import Range, Run, entries_with, keyed_records, ranges_of
from korvet.share.start_offset import find_start
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError
from korvet.topics.table import Topic, TopicTable
from korvet.wire.records import BadBatch, Buffer

AS_FETCH = 17
"""The version of Fetch whose record format ShareFetch has."""
TRIES = 8
"""Reads of one acquire: other members may have taken what the first ones read."""
MIN_READ_BYTES, FIRST_READ_BYTES = 1 << 14, 1 << 18
MORE = 1.25
"""Bytes read, as a multiple of the expected size of the records that the member may take."""
MAX_PLACES = 10_000


class ShareFetchParams(msgspec.Struct, frozen=True):
    """A ShareFetch, for all its partitions."""

    group: str
    member: str
    config: ShareGroupConfig
    exact: bool
    """Never more records than asked for (acquire mode 1)."""


class Budget(msgspec.Struct):
    """The number of records and bytes that a response may still take."""

    records: int
    bytes: int


class Acquired(msgspec.Struct):
    """The result of one acquire."""

    error: ErrorCode = ErrorCode.NONE
    runs: Sequence[Run] = ()
    records: Sequence[Buffer] = ()
    wait_ms: int = -1
    """Time to the next lapsed lock or ended delay, -1: there is none."""
    skipped: bool = False
    """Whether another partition of the request may use up the budget."""


class Place(msgspec.Struct):
    """A share partition as this process knows it."""

    lock: asyncio.Lock
    next: int = -1
    """The offset to read from; -1: unknown."""
    room: int = 0
    ordered: bool = False
    """Whether calls need the keys of records (share.order=key)."""
    record_bytes: float = 0.0
    """Average size of a record in the last read, 0: unknown."""

    def learn(self, reply: AcquireReply) -> None:
        """Use the place that the script answered."""
        self.next, self.room, self.ordered = reply.next, reply.room, bool(reply.ordered)

    def read_bytes(self, records: int) -> int:
        """Return how many bytes to read for that many records."""
        if not self.record_bytes:
            return FIRST_READ_BYTES
        return max(MIN_READ_BYTES, int(self.record_bytes * records * MORE))


class Acquirer:
    """Acquires records of the partitions of one store."""

    def __init__(
        self,
        store: AsyncStore,
        keys: Keys,
        topics: TopicTable,
        log_reader: LogReader,
        settings: Callable[[], Settings],
        dead_letters: DeadLetters,
    ) -> None:
        self._store = store
        self._keys = keys
        self._topics = topics
        self._log_reader = log_reader
        self._settings = settings
        self._dead_letters = dead_letters
        self._places: dict[tuple[str, str, int], Place] = {}

    def max_bytes(self, asked: int) -> int:
        """Return how many bytes of records a response may have, after its first batch."""
        return max(0, min(asked, self._settings().integer("fetch.max.bytes")))

    def channels(self, topic: Topic, partition: int) -> tuple[str, str]:
        """Return the channels of appends to the partition and of records released in it."""
        k = self._keys.partition(topic.name, partition)
        return k.channel, k.share

    def forget_place(self, group: str, topic: Topic, partition: int) -> None:
        """Ask the script for the place of the next read: records may be available below it."""
        place = self._places.get((group, topic.id, partition))
        if place is not None:
            place.next = -1

    async def acquire(
        self, params: ShareFetchParams, topic: Topic, partition: int, budget: Budget
    ) -> Acquired:
        """Acquire records within the budget, and take from it what they use."""
        place = self._place(params.group, topic, partition)
        async with place.lock:
            try:
                return await self._acquire(params, topic, partition, place, budget)
            except StoreError:
                place.next = -1
                return Acquired(ErrorCode.KAFKA_STORAGE_ERROR)

    def _place(self, group: str, topic: Topic, partition: int) -> Place:
        key = (group, topic.id, partition)
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= MAX_PLACES:
                self._places.clear()
            place = self._places[key] = Place(asyncio.Lock())
        return place

    async def _acquire(
        self, params: ShareFetchParams, topic: Topic, partition: int, place: Place, budget: Budget
    ) -> Acquired:
        acquired, empty_at = Acquired(), -1
        for _ in range(TRIES):
            asked = place.next < 0
            if asked:
                reply = await self._ask(params, topic, partition)
                if reply.error:
                    return Acquired(self._error(reply.error))
                acquired.wait_ms = reply.wait_ms
                place.learn(reply)
            # The log may have ended there already when the place was remembered.
            if place.next == empty_at:
                return acquired
            result = await self._read(params, topic, partition, place, budget)
            if result.error and result.error != ErrorCode.OFFSET_OUT_OF_RANGE:
                return Acquired(self._error(result.error))
            if result.entries:
                if await self._use(acquired, params, topic, partition, place, result, budget):
                    return acquired
            elif asked and not result.error:
                return acquired
            else:
                # Records may be available below a remembered place.
                empty_at, place.next = -1 if result.error else place.next, -1
        return acquired

    async def _use(
        self,
        acquired: Acquired,
        params: ShareFetchParams,
        topic: Topic,
        partition: int,
        place: Place,
        result: ReadResult,
        budget: Budget,
    ) -> bool:
        """Acquire records of a read; return whether `acquired` is complete."""
        if budget.records <= 0:
            acquired.skipped = True
            return True
        first, ordered = place.next, place.ordered
        reply = await self._take(params, topic, partition, place, result, budget)
        if reply.error:
            place.next = -1
            acquired.error = self._error(reply.error)
            return True
        place.learn(reply)
        acquired.wait_ms = reply.wait_ms
        if reply.runs:
            _respond(acquired, topic, result, reply, first, budget)
        return bool(reply.runs) or (reply.next == first and place.ordered == ordered)

    def _error(self, code: int) -> ErrorCode:
        """Return the error; read the topics again if one does not exist as it was known."""
        error = ErrorCode(code)
        if error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            self._topics.invalidate()
        return error

    async def _read(
        self, params: ShareFetchParams, topic: Topic, partition: int, place: Place, budget: Budget
    ) -> ReadResult:
        most = min(max(budget.bytes, 0), place.read_bytes(budget.records))
        request = ReadRequest(
            topic,
            partition,
            place.next,
            most,
            committed=params.config.read_committed,
            decompress=True,
        )
        result = await self._log_reader.read(request)
        if result.entries:
            place.record_bytes = result.size / layout_of(topic).count_records(result.entries)
        return result

    async def _ask(self, params: ShareFetchParams, topic: Topic, partition: int) -> AcquireReply:
        """Ask where to read from; give the group a state if it has none."""
        reply = await self._run(params, topic, partition, ())
        if reply.error != Signal.START_FIRST:
            return reply
        start = await find_start(
            self._store, self._keys, self._log_reader, topic, partition, params.config
        )
        if start < 0:
            return AcquireReply(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, -1, 0, 0, [])
        return await self._run(params, topic, partition, (), start=start)

    async def _take(
        self,
        params: ShareFetchParams,
        topic: Topic,
        partition: int,
        place: Place,
        result: ReadResult,
        budget: Budget,
    ) -> AcquireReply:
        """Let the script decide which of the records read the member gets."""
        most = budget.records
        together = most if place.room <= 0 else min(most, place.room)
        ranges: Sequence[Range] | Sequence[tuple[int, str]]
        if place.ordered:
            ranges = keyed_records(topic, result, place.next)
        else:
            ranges = ranges_of(topic, result, place.next, together)
        # Other partitions of the request get none meanwhile.
        budget.records = 0
        taken = 0
        try:
            reply = await self._run(
                params,
                topic,
                partition,
                ranges,
                read=(place.next, result.entries[-1].last),
                most=most,
                exact=params.exact or not layout_of(topic).holds_batches,
                has_keys=place.ordered,
            )
            flat = reply.runs
            taken = sum(last - first + 1 for first, last in zip(flat[::3], flat[1::3], strict=True))
            return reply
        finally:
            budget.records = most - taken

    async def _run(
        self,
        params: ShareFetchParams,
        topic: Topic,
        partition: int,
        ranges: Sequence[Range] | Sequence[tuple[int, str]],
        *,
        start: int = -1,
        read: Range = (-1, -1),
        most: int = 0,
        exact: bool = False,
        has_keys: bool = False,
    ) -> AcquireReply:
        config = params.config
        reply = await self._store.run(
            share.acquire(
                self._keys,
                topic.name,
                partition,
                ranges,
                group=params.group,
                member=params.member,
                topic_id=topic.id,
                start=start,
                read_from=read[0],
                read_to=read[1],
                most=most,
                exact=int(exact),
                lock_ms=config.record_lock_duration_ms,
                delivery_limit=config.delivery_count_limit,
                max_locks=config.partition_max_record_locks,
                dead_letters=int(config.has_dead_letters),
                ordered=int(config.ordered_by_key),
                has_keys=int(has_keys),
            )
        )
        self._dead_letters.notice(params.group, config, topic, partition, reply.letters)
        return reply


def _respond(
    acquired: Acquired,
    topic: Topic,
    result: ReadResult,
    reply: AcquireReply,
    offset: int,
    budget: Budget,
) -> None:
    """Add the acquired runs with the entries that hold them."""
    flat = iter(reply.runs)
    runs = list(zip(flat, flat, flat, strict=True))
    result.entries = entries_with(result.entries, runs)
    try:
        acquired.records = encode_records(topic, result, offset, budget.bytes, AS_FETCH)
    except BadBatch as bad:
        is_invalid = bad.error == ErrorCode.INVALID_RECORD
        acquired.error = ErrorCode.CORRUPT_MESSAGE if is_invalid else bad.error
        return
    acquired.runs = runs
    budget.bytes -= sum(map(len, acquired.records))
