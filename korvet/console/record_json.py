"""Produce, read and follow records as JSON, in the shapes of Confluent's REST proxy.

Rules
- Format `json`: a key or value that is JSON is written as it is, to the digit. Other UTF-8 is read
  as a string, other bytes as `{"base64": ...}`. Format `binary` is base64, and exact.
- Records are produced by the Produce request of the user. What is read is charged to the quota of
  the user before the next read.
"""

import base64
import binascii
from collections.abc import AsyncGenerator, Mapping, Sequence
from time import monotonic, time
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import StreamingResponse

from korvet.admin.requests import TIMEOUT_MS
from korvet.base.errors import ErrorCode
from korvet.console.browse import large_at
from korvet.console.pages.records import MAX_PARTITIONS, offsets_at, parse_offsets
from korvet.console.pages.topic import find_topic
from korvet.console.visit import NO_PARTITION, PageError, Visit, bytes_of, check_row
from korvet.library.batches import Batcher, encode_batch
from korvet.library.following import AsyncFollower, Reading
from korvet.library.values import KorvetError, Record, StoredRecord
from korvet.log.position import EARLIEST
from korvet.security.acl import Operation, ResourceType
from korvet.security.quotas import CONSUMER_BYTES, PRODUCER_BYTES
from korvet.store.errors import StoreError
from korvet.topics.table import Topic
from korvet.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

READ_BYTES, MAX_READ_BYTES = 1 << 20, 4 << 20
"""Bytes of the records of a response, by default and at most; one record is always returned."""
MAX_TAILS = 20
"""Max open responses of events."""
KEEP_ALIVE_S = 15.0
"""Seconds without a record after which a comment is sent."""
CHECK_S, CHECK_BYTES = 1.0, 1 << 16
"""The rights and the quota of the user are checked after this time, or these bytes."""
_NULL = msgspec.Raw(b"null")
Json = Annotated[msgspec.Raw, Meta(description="Any JSON; base64 in format binary.")]


class Header(msgspec.Struct, frozen=True):
    """A header of a record: text in format `json`, base64 in format `binary`."""

    name: str
    value: str | None = None


class NewRecord(msgspec.Struct, frozen=True):
    """A record to produce; `timestamp` is in ms."""

    value: Json = msgspec.field(default_factory=lambda: _NULL)
    key: Json = msgspec.field(default_factory=lambda: _NULL)
    partition: Annotated[int, Meta(ge=0, lt=1 << 31)] | None = None
    timestamp: Annotated[int, Meta(ge=0, lt=1 << 48)] | None = None
    headers: list[Header] = []


class NewRecords(msgspec.Struct, frozen=True):
    """Records to produce, in the order of each partition."""

    records: list[NewRecord]


class ProducedRecord(msgspec.Struct, frozen=True):
    """The place of a record; `offset` is null if Redis did not say it."""

    partition: int
    offset: int | None
    error_code: int | None = None
    """1 for a record that was refused; 2 for one that can be sent again."""
    error: str | None = None


class ProducedRecords(msgspec.Struct, frozen=True):
    """The places of the records, in the order of the request."""

    offsets: list[ProducedRecord]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


class ReadHeader(msgspec.Struct, frozen=True):
    """A header of a record that was read."""

    name: str
    value: Json


class ReadRecord(msgspec.Struct, frozen=True):
    """A record as it was read; `timestamp` is in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Json
    value: Json
    headers: list[ReadHeader]


# Bytes and JSON.


def is_binary(visit: Visit, header: str = "accept") -> bool:
    """Return whether the query, or a media type, asks for base64. Raises PageError."""
    asked = "binary" if ".binary." in visit.request.headers.get(header, "") else "json"
    how = visit.query("format", asked)
    if how not in ("json", "binary"):
        raise PageError(400, f"format must be json or binary, not {how!r}.")
    return how == "binary"


def _as_json(data: bytes | None, *, binary: bool, text: bool = False) -> msgspec.Raw:
    """Return bytes as JSON of one line; `text`: they are no JSON themselves."""
    shown: Any = data
    if data is not None and not binary:
        try:
            shown = data.decode()
            if not text:
                msgspec.json.decode(data)
                return msgspec.Raw(msgspec.json.format(data, indent=-1))
        except UnicodeDecodeError:
            shown = {"base64": data}
        except (ValueError, RecursionError):
            pass
    return msgspec.Raw(msgspec.json.encode(shown))


def row_of(record: StoredRecord, *, binary: bool) -> ReadRecord:
    """Return a record with its bytes as JSON."""
    headers = [
        ReadHeader(name, _as_json(value, binary=binary, text=True))
        for name, value in record.headers
    ]
    return ReadRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        _as_json(record.key, binary=binary),
        _as_json(record.value, binary=binary),
        headers,
    )


def _bytes(raw: msgspec.Raw, *, binary: bool) -> bytes | None:
    data = bytes(raw)
    if data == b"null":
        return None
    return _from_base64(msgspec.json.decode(data)) if binary else data


def _from_base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise PageError(422, "Format binary takes keys and values as base64.") from None


def _record(new: NewRecord, *, binary: bool) -> Record:
    convert = _from_base64 if binary else str.encode
    headers = [
        (each.name, None if each.value is None else convert(each.value)) for each in new.headers
    ]
    value, key = _bytes(new.value, binary=binary), _bytes(new.key, binary=binary)
    return Record(value=value, key=key, headers=headers, timestamp_ms=new.timestamp)


# Produce.


async def produce(visit: Visit, body: NewRecords) -> ProducedRecords:
    """Append records; equal keys go to one partition, as Kafka's clients choose it."""
    topic = await find_topic(visit, Operation.WRITE)
    binary = is_binary(visit, "content-type")
    records = [_record(each, binary=binary) for each in body.records]
    if not records:
        raise PageError(422, "The request has no records.", 42200)
    for each in body.records:
        check_number(topic, each.partition or 0)
    await visit.charge(PRODUCER_BYTES, sum(map(bytes_of, records)))
    at = {id(record): index for index, record in enumerate(records)}
    rows = zip((each.partition for each in body.records), records, strict=True)
    batcher = visit.log.batchers.setdefault(topic.name, Batcher())
    waiting = list(batcher.batches(rows, topic.partitions, topic.policy.max_message_bytes))
    found: dict[int, ProducedRecord] = {}
    answers = []
    while waiting:  # a request has one batch of a partition
        turn = dict(reversed(waiting))
        waiting = [each for each in waiting if turn[each[0]] is not each[1]]
        for row in await _append(visit, topic, turn):
            answers.append(row)
            for index, record in enumerate(turn[row.index]):
                found[at[id(record)]] = _produced(row, index)
    if all(row.error_code for row in answers):
        check_row(answers[0])
    return ProducedRecords([found[index] for index in range(len(records))])


async def _append(
    visit: Visit, topic: Topic, batches: Mapping[int, Sequence[Record]]
) -> Sequence[PartitionProduceResponse]:
    """Send a Produce request; return the responses of the partitions."""
    now_ms = int(time() * 1000)
    data = [
        PartitionProduceData(index=number, records=bytes(encode_batch(records, now_ms)))
        for number, records in batches.items()
    ]
    wanted = TopicProduceData(topic_id=topic.uuid, partition_data=data)
    answer = await visit.call(ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[wanted]))
    rows: Sequence[PartitionProduceResponse] = answer.responses[0].partition_responses
    return rows


def _produced(row: PartitionProduceResponse, index: int) -> ProducedRecord:
    if not row.error_code:
        return ProducedRecord(row.index, None if row.base_offset < 0 else row.base_offset + index)
    code = ErrorCode(row.error_code)
    reason = f"{row.error_message or code.message} ({code.name})"
    return ProducedRecord(row.index, None, 2 if code.retriable else 1, reason)


def check_number(topic: Topic, number: int) -> None:
    """Raise PageError unless the topic has the partition."""
    if not 0 <= number < topic.partitions:
        sentence = f"{topic.name} has partitions 0 to {topic.partitions - 1}."
        raise PageError(404, sentence, NO_PARTITION)


# Read, and follow.


async def read(visit: Visit, _: None) -> list[ReadRecord]:
    """Return the records of a partition from `offset` on, without those of aborted transactions."""
    topic = await find_topic(visit, Operation.READ)
    binary = is_binary(visit)
    number = visit.request.path_params["partition"]
    check_number(topic, number)
    offset = visit.number("offset", 0, (1 << 63) - 1)
    max_bytes = visit.number("max_bytes", READ_BYTES, MAX_READ_BYTES)
    if await large_at(visit.log, topic.name, number, offset):
        raise PageError(413, f"The record at offset {offset} is too large for a response.")
    got = await visit.read(topic.name, number, offset, max_bytes, committed=True)
    return [row_of(record, binary=binary) for record in got.records]


async def follow(visit: Visit, _: None) -> StreamingResponse:
    """Send the records of a topic as server-sent events, as they arrive."""
    topic = await find_topic(visit, Operation.READ)
    binary = is_binary(visit)
    if visit.console.tails >= MAX_TAILS:
        raise PageError(503, f"{MAX_TAILS} responses of events are open: try again later.")
    numbers: Sequence[int] = range(topic.partitions)
    if visit.query("partition"):
        numbers = [visit.number("partition", 0, 1 << 31)]
        check_number(topic, numbers[0])
    if len(numbers) > MAX_PARTITIONS:
        raise PageError(400, f"{topic.name} has more than {MAX_PARTITIONS} partitions: choose one.")
    seen = visit.request.headers.get("last-event-id")
    offsets = parse_offsets("Last-Event-ID", seen) if seen else {}
    unknown = [number for number in numbers if number not in offsets]
    offsets |= await offsets_at(visit, topic, visit.query("from") or "latest", unknown)
    offsets = {number: offsets[number] for number in numbers}
    events = _events(visit, topic, offsets, binary=binary)
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _events(
    visit: Visit, topic: Topic, offsets: dict[int, int], *, binary: bool
) -> AsyncGenerator[str, None]:
    """Yield events; the id of each says where its partitions continue."""
    reading = Reading(EARLIEST, committed=True, idle_s=CHECK_S)
    follower = AsyncFollower(visit.log, topic, offsets, reading)
    visit.console.tails += 1
    try:
        yield "retry: 2000\n\n"
        size, check_at, sent_at = 0, 0.0, monotonic()
        while not visit.console.is_closing:
            if size >= CHECK_BYTES or monotonic() >= check_at:
                await visit.console.refresh()
                visit.require(Operation.READ, ResourceType.TOPIC, topic.name)
                await visit.wait_for_quota(CONSUMER_BYTES, size)
                size, check_at = 0, monotonic() + CHECK_S
            record = await follower.next()
            if record is not None:
                size += bytes_of(record)
                offsets[record.partition] = record.offset + 1
                cursor = ",".join(f"{number}:{offset}" for number, offset in offsets.items())
                data = msgspec.json.encode(row_of(record, binary=binary)).decode()
                yield f"id: {cursor}\ndata: {data}\n\n"
                sent_at = monotonic()
            elif monotonic() - sent_at >= KEEP_ALIVE_S:
                yield ":\n\n"
                sent_at = monotonic()
    except (PageError, KorvetError, StoreError) as error:
        failed = msgspec.json.encode({"message": str(error)})
        yield f"event: error\ndata: {failed.decode()}\n\n"
    finally:
        visit.console.tails -= 1
        await follower.close()
