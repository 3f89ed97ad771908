"""FETCH and OFFSETS of the Kafka 0.7 protocol: the log as one file of bytes.

Behaviour
- FETCH returns the bytes [offset, offset + max_bytes) of the log: the last message may be cut. An
  offset inside a message returns the rest of it. At the end: nothing, and no error. Below the log
  start or above the end: OffsetOutOfRange. A negative size: InvalidFetchSize.
- A topic that does not exist: FETCH returns nothing, OFFSETS one offset 0 for -1 and -2, none for
  a time. A partition the topic does not have: WrongPartition.
- OFFSETS returns, newest first, the end of the log, then the older offsets of the sparse index,
  down to the log start: what segment boundaries were in 0.7.
"""

from time import time as now

from korvet.base.errors import ErrorCode
from korvet.fetch.partition_reader import ResponseMemory
from korvet.legacy.topics import LegacyTopics, Refusal
from korvet.log.layouts import bytes as bytes_layout
from korvet.log.read_result import ReadRequest
from korvet.log.reader import LogReader
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic
from korvet.wire import message_sets_v07
from korvet.wire.requests_v07 import (
    EARLIEST,
    LATEST,
    Buffer,
    Fetch,
    LegacyError,
    Offsets,
    messages_answer,
    offsets_answer,
)

MAX_ANSWER = 64 << 20
"""Bytes of messages per response to FETCH or MULTIFETCH."""
MAX_OFFSETS = 10_000


class LegacyReader:
    """Reads logs of offset.mode=bytes for all connections."""

    def __init__(self, store: AsyncStore, topics: LegacyTopics, memory: ResponseMemory) -> None:
        self._store = store
        self._topics = topics
        self._memory = memory
        self._reader = LogReader(store)

    def response_limit(self) -> int:
        """Return how many bytes of messages a response may have now."""
        return min(MAX_ANSWER, self._memory.available)

    async def fetch(self, request: Fetch, room: int) -> list[Buffer]:
        """Return the response to FETCH, at most `room` bytes. Raises Refusal, StoreError."""
        topic = await self._topics.find(request.topic, request.partition)
        if request.max_bytes < 0:
            raise Refusal(
                LegacyError.INVALID_FETCH_SIZE, f"a fetch cannot ask for {request.max_bytes} bytes"
            )
        if topic is None:
            return messages_answer(0, [])
        return messages_answer(0, await self._read_bytes(topic, request, room))

    async def _read_bytes(self, topic: Topic, request: Fetch, room: int) -> list[Buffer]:
        """Return the log's bytes from the offset on, as many as asked for and available."""
        at, end = request.offset, request.offset + min(request.max_bytes, room)
        parts: list[Buffer] = []
        while True:
            # The first entry may begin far below `at`: asking for more saves a round trip.
            size = end - at + min(message_sets_v07.PIECE_BYTES, (end - at) // 8)
            found = await self._reader.read(
                ReadRequest(topic, request.partition, at, size, raw=True)
            )
            if found.error and not parts:
                raise _out_of_range(found.error, at)
            if found.error or at >= found.end:
                return parts
            for entry in found.entries:
                if entry.first > at:  # another Redis client deleted entries
                    if not parts:
                        raise _out_of_range(ErrorCode.OFFSET_OUT_OF_RANGE, at)
                    return parts
                raw = memoryview(bytes_layout.raw_of(entry.fields))
                parts.append(raw[at - entry.first : end - entry.first])
                at = entry.last + 1
                if at >= end:
                    return parts
            if not found.entries:
                return parts

    async def offsets(self, request: Offsets) -> list[Buffer]:
        """Return the response to OFFSETS. Raises Refusal, StoreError."""
        topic = await self._topics.find(request.topic, request.partition)
        count = max(0, min(request.max_offsets, MAX_OFFSETS))
        if topic is None:
            return offsets_answer(0, [0][:count] if request.time in (LATEST, EARLIEST) else [])
        return offsets_answer(0, (await self._find_offsets(topic, request, count))[:count])

    async def _find_offsets(self, topic: Topic, request: Offsets, count: int) -> list[int]:
        """Return offsets, newest first: the end, the rows of the index, the start.

        The end counts as now; a row of the index as the newest message below the next row.
        """
        partition = topic.partition(request.partition)
        bounds = await self._store.run(partition.list_offsets())
        if bounds.error:
            self._topics.node.topics.invalidate()
            raise Refusal(LegacyError.UNKNOWN, ErrorCode(bounds.error).message)
        start, end, time = bounds.first, bounds.next, request.time
        if time == EARLIEST:
            return [start]
        found, below = [], end
        if time == LATEST or time >= int(now() * 1000):
            found.append(end)
        elif time < bounds.newest:
            sought = await self._store.run(partition.find_timestamp(timestamp=time + 1))
            below = sought.offset
        if below <= start:
            return found
        rows = await self._store.command(
            "ZREVRANGEBYSCORE", partition.index, f"({below}", f"({start}", "LIMIT", 0, count
        )
        return [*found, *(int(row.split(b":")[0]) for row in rows), start]


def _out_of_range(error: ErrorCode, offset: int) -> Refusal:
    if error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Refusal(LegacyError.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in the log")
    return Refusal(LegacyError.UNKNOWN, error.message)
