"""FETCH and OFFSETS of Kafka 0.7: the log as one file of bytes, and where to begin in it.

Behaviour
- FETCH answers the bytes [offset, offset + most) of the log: the last message may be cut, and an
  offset inside a message serves the rest of it. At the end: nothing, and no error. Below the log's
  start or behind its end: OffsetOutOfRange. A negative size: InvalidFetchSize.
- A topic nobody has written to: FETCH answers nothing, OFFSETS one offset 0 for -1 and -2, none for
  a time. A partition the topic does not have: WrongPartition.
- OFFSETS answers, newest first, the end of the log and the places of the sparse index that are
  older than the time, down to the log's start: what segment boundaries were to 0.7.
"""

from time import time as now

from korvet.context import Services
from korvet.errors import ErrorCode
from korvet.legacy.protocol import (
    EARLIEST,
    LATEST,
    Buffer,
    Fetch,
    LegacyError,
    Offsets,
    messages_answer,
    offsets_answer,
)
from korvet.legacy.topics import Refusal, usable
from korvet.log.layouts import bytes as bytes_layout
from korvet.log.read_request import ReadRequest
from korvet.log.reader import LogReader
from korvet.scripts import log
from korvet.store.errors import StoreError
from korvet.topics.table import Topic
from korvet.wire import message_sets_v07

MAX_ANSWER = 64 << 20
"""A FETCH that asks for more, or a MULTIFETCH in all, gets this much."""
MAX_OFFSETS = 10_000


def room_for(services: Services) -> int:
    """How many bytes of messages an answer may have now: less while clients owe us much reading."""
    return min(MAX_ANSWER, services.response_memory.available)


async def fetch(request: Fetch, services: Services, reader: LogReader, room: int) -> list[Buffer]:
    """The answer's buffers, at most `room` bytes of messages; Refusal where 0.7 has an error."""
    topic = await _topic(request.topic, request.partition, services)
    if request.most < 0:
        raise Refusal(
            LegacyError.INVALID_FETCH_SIZE, f"a fetch cannot ask for {request.most} bytes"
        )
    if topic is None:
        return messages_answer(0, [])
    try:
        return messages_answer(0, await _bytes(topic, request, reader, room))
    except StoreError as error:
        raise Refusal(LegacyError.UNKNOWN, str(error)) from None


async def _topic(name: str, partition: int, services: Services) -> Topic | None:
    """The topic, None when there is none."""
    try:
        topic = await services.topics.get(name)
    except StoreError as error:
        raise Refusal(LegacyError.UNKNOWN, str(error)) from None
    if topic is not None:
        return usable(topic, partition)
    if not 0 <= partition < services.settings.integer("legacy.num.partitions"):
        raise Refusal(LegacyError.WRONG_PARTITION, f"topic {name} will have no {partition}")
    return None


async def _bytes(topic: Topic, request: Fetch, reader: LogReader, room: int) -> list[Buffer]:
    """The log's bytes from the offset on, as many as were asked for and there are."""
    at, end = request.offset, request.offset + min(request.most, room)
    parts: list[Buffer] = []
    while True:
        # The first entry may begin long before `at`: a little more saves a second round.
        size = end - at + min(message_sets_v07.PIECE_BYTES, (end - at) // 8)
        found = await reader.read(ReadRequest(topic, request.partition, at, size, raw=True))
        if found.error and not parts:
            raise _out_of_range(found.error, at)
        if found.error or at >= found.end:
            return parts
        for entry in found.entries:
            if entry.first > at:  # somebody removed entries natively: a file would end here
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


def _out_of_range(error: ErrorCode, offset: int) -> Refusal:
    if error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Refusal(LegacyError.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in the log")
    return Refusal(LegacyError.UNKNOWN, error.message)


async def offsets(request: Offsets, services: Services) -> list[Buffer]:
    """The answer's buffers; Refusal where 0.7 has an error for it."""
    topic = await _topic(request.topic, request.partition, services)
    most = max(0, min(request.most, MAX_OFFSETS))
    if topic is None:
        return offsets_answer(0, [0][:most] if request.time in (LATEST, EARLIEST) else [])
    try:
        return offsets_answer(0, (await _places(topic, request, services, most))[:most])
    except StoreError as error:
        raise Refusal(LegacyError.UNKNOWN, str(error)) from None


async def _places(topic: Topic, request: Offsets, services: Services, most: int) -> list[int]:
    """Offsets, newest first: the end, which is as of now, then the steps of the index, whose
    moment is that of the newest message before the next step, then the start."""
    k = services.keys.partition(topic.name, request.partition)
    bounds = await services.store.run(
        log.list_offsets(services.keys, topic.name, request.partition, topic_id=topic.id)
    )
    if bounds.error:
        services.topics.drop()
        raise Refusal(LegacyError.UNKNOWN, ErrorCode(bounds.error).message)
    start, end, time = bounds.first, bounds.next, request.time
    if time == EARLIEST:
        return [start]
    found, below = [], end
    if time == LATEST or time >= int(now() * 1000):
        found.append(end)
    elif time < bounds.newest:
        sought = await services.store.run(
            log.find_timestamp(
                services.keys, topic.name, request.partition, topic_id=topic.id, timestamp=time + 1
            )
        )
        below = sought.offset
    if below <= start:
        return found
    rows = await services.store.command(
        "ZREVRANGEBYSCORE", k.index, f"({below}", f"({start}", "LIMIT", 0, most
    )
    return [*found, *(int(row.split(b":")[0]) for row in rows), start]
