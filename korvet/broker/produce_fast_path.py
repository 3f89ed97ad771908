"""The producer that sends the same request again and again, with another batch each time.

Taking a small Produce request apart and putting its answer together costs more than its batch does,
and both are, but for a few numbers, what they were the last time.

Rules
- A shape is learned from a request for one partition that went the usual way: its frame but for
  the correlation id, the partition's index and the batch; its answer but for what was stored.
- A frame goes this way only if it has that shape byte for byte, while topic and settings are the
  very same; its batch is prepared by what prepares every batch. Any other goes the usual way.
- Whatever is not a plain "stored" is answered the usual way, too.
"""

import struct
from time import perf_counter, time
from typing import Protocol

from korvet import apis
from korvet.broker.dispatch import PRODUCE, Request
from korvet.broker.receive_buffer import Frame
from korvet.context import Context, Services
from korvet.deferred import Deferred
from korvet.log.validator import prepare_append
from korvet.produce.in_flight import PartitionAppend, ProduceInFlight, noted
from korvet.scripts.call import Call
from korvet.scripts.log import AppendReply
from korvet.topics.table import Topic
from korvet.wire.headers import decode_request_header, encode_response_header, is_flexible
from korvet.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from korvet.wire.primitives import Fault, uvarint_tail
from korvet.wire.records import BadBatch, Buffer
from korvet.wire.schema import decode, encode_parts

OLDEST = 3
"""Before this version records have another format."""
MOST = 16
"""So many shapes are kept for a connection."""
_WITH_START = 5
"""From this version on an answer tells the log start offset."""
_BEHIND_ID = 8
_NUMBER = struct.Struct(">i")
_LEAD = struct.Struct(">ii")
_NO_TAGS = bytes(3)
"""What ends a flexible request: the tags of its partition, of its topic and its own."""
_MARKS = (0x76543210, 0, 0x123456789ABCDEF, 0x23456789ABCDEF1, 0x3456789ABCDEF12)


class ResponseSink(Protocol):
    """The connection that requests come by."""

    def settle(self, number: int, answer: list[Buffer] | None) -> None:
        """The request of that number is answered."""

    def spawn(self, request: Request, number: int) -> None:
        """The request of that number will be answered."""


class ProduceTemplate:
    """One shape of request, and of its answer."""

    def __init__(self, topic: Topic, frame: Frame, index_at: int, context: Context) -> None:
        self.topic = topic
        self.context = context
        self._services = context.services
        self._settings = context.settings
        self._flexible = is_flexible(PRODUCE, context.version)
        self._start = bytes(frame[:4])
        self._index_at = index_at
        self._stamp = int(topic.policy.log_append_time)
        with_start = context.version >= _WITH_START
        self._row = struct.Struct(">ihqqq" if with_start else ">ihqq")
        self._numbers = 5 if with_start else 4
        marks = self._row.pack(*_MARKS[: self._numbers])
        answer = _usual_answer(topic, context.version)
        at = answer.index(marks)
        self._size = len(answer) - 4
        self._head, self._tail = answer[8:at], answer[at + len(marks) :]

    def begin(self, frame: Frame, asker: ResponseSink, number: int) -> bool:
        """Whether the frame, which is like this shape from the correlation id to the index, is so
        all over, and its batch on its way to Redis."""
        began = perf_counter()
        if not frame.startswith(self._start):
            return False
        services, topic = self._services, self.topic
        if services.settings is not self._settings or not services.topics.is_current(topic):
            return False
        batch = self.batch_in(frame)
        if batch is None:
            return False
        (index,) = _NUMBER.unpack_from(frame, self._index_at)
        if not 0 <= index < topic.partitions:
            return False
        try:
            call = prepare_append(
                services.keys,
                topic,
                index,
                batch,
                version=self.context.version,
                now_ms=int(time() * 1000),
                settings=self._settings,
            )
        except BadBatch:
            return False
        size = len(batch)
        sent = FastAppend(self, frame, index, call, size, asker, number, began)
        services.append_batcher.submit((topic.name, index, topic.id, self._stamp), call, size, sent)
        return True

    def batch_in(self, frame: Frame) -> memoryview | None:
        """The batch of a frame that begins like this shape; None if it does not end like it."""
        at, end = self._index_at + 4, len(frame)
        try:
            if self._flexible:
                length = frame[at]
                at += 1
                if length >= 0x80:
                    length, at = uvarint_tail(frame, at, length)
                length -= 1
                end -= len(_NO_TAGS)
                if not frame.endswith(_NO_TAGS):
                    return None
            else:
                (length,) = _NUMBER.unpack_from(frame, at)
                at += 4
        except (IndexError, struct.error, Fault):
            return None
        return memoryview(frame)[at:end] if at + length == end and length > 0 else None

    def answer(self, frame: Frame, index: int, reply: AppendReply) -> Buffer:
        """The answer to the request in this frame: its batch is stored."""
        numbers = (index, 0, reply.base, reply.append_time, reply.start)
        row = self._row.pack(*numbers[: self._numbers])
        (correlation_id,) = _NUMBER.unpack_from(frame, 4)
        return _LEAD.pack(self._size, correlation_id) + self._head + row + self._tail


class FastAppend:
    """A batch on its way to Redis; takes the reply as a future would."""

    __slots__ = ("_asker", "_began", "_call", "_frame", "_index", "_number", "_size", "_steady")

    def __init__(
        self,
        steady: ProduceTemplate,
        frame: Frame,
        index: int,
        call: Call[AppendReply],
        size: int,
        asker: ResponseSink,
        number: int,
        began: float,
    ) -> None:
        self._steady = steady
        self._frame = frame
        self._index = index
        self._call = call
        self._size = size
        self._asker = asker
        self._number = number
        self._began = began

    def done(self) -> bool:
        """Never before its reply: nobody can cancel it."""
        return False

    def set_result(self, reply: AppendReply) -> None:
        """The request is answered, or will be."""
        if reply.error:
            self._answer_usually().set_result(reply)
            return
        steady = self._steady
        context = steady.context
        noted(steady.topic, self._index, self._call, reply, self._size, context)
        context.services.metrics.answered("Produce", "NONE", perf_counter() - self._began)
        self._asker.settle(self._number, [steady.answer(self._frame, self._index, reply)])

    def set_exception(self, error: BaseException) -> None:
        """The request will be told so."""
        self._answer_usually().set_exception(error)

    def _answer_usually(self) -> PartitionAppend:
        """The request will be answered as any other, once this has the reply."""
        context = self._steady.context
        header, at = decode_request_header(self._frame)
        body = decode(ProduceRequest, self._frame, context.version, at, exact=False)
        data = body.topic_data[0]
        appends = ProduceInFlight(body, context)
        append = appends.expect(
            self._steady.topic, self._index, data.partition_data[0].records or b"", self._call
        )
        appends.of_topic(data).append(append)
        self._asker.spawn(
            Request(
                api=apis.BY_KEY[PRODUCE],
                version=context.version,
                correlation_id=header.correlation_id,
                client_id=header.client_id,
                answer=appends.answer(),
                body=body,
                began=self._began,
            ),
            self._number,
        )
        return append


class TemplateCache:
    """What the requests of one connection look like."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[bytes, ProduceTemplate] = {}
        self._ends: list[int] = []
        self._unlike = 0

    def begin(self, frame: Frame, asker: ResponseSink, number: int) -> bool:
        """Whether the request is like one before it, and was begun as that was."""
        if self._services.interceptor:
            return False
        for end in self._ends:
            steady = self._known.get(bytes(frame[_BEHIND_ID:end]))
            if steady is not None:
                return steady.begin(frame, asker, number)
        return False

    def learn(self, frame: Frame, request: Request, host: str) -> None:
        """Requests like this one need not go the usual way again. Where few are alike, few are
        looked at: at last the 32nd, the 64th and so on."""
        self._unlike += 1
        if self._unlike > MOST and self._unlike & (self._unlike - 1):
            return
        found = _learn(frame, request, self._services, host)
        if found is None:
            return
        steady, end = found
        if len(self._known) >= MOST:
            self._known.clear()
            self._ends.clear()
        self._known[bytes(frame[_BEHIND_ID:end])] = steady
        if end not in self._ends:
            self._ends.append(end)


def _learn(
    frame: Frame, request: Request, services: Services, host: str
) -> tuple[ProduceTemplate, int] | None:
    """The shape of a request that was taken, if it has one, and where its index stands."""
    body = request.body
    if (
        not isinstance(body, ProduceRequest)
        or not isinstance(request.answer, Deferred)
        or request.version < OLDEST
        or not body.acks
        or body.transactional_id is not None
        or len(body.topic_data) != 1
        or len(body.topic_data[0].partition_data) != 1
    ):
        return None
    data = body.topic_data[0]
    batch = data.partition_data[0].records or b""
    topic = (
        services.topics.peek_id(data.topic_id) if not data.name else services.topics.peek(data.name)
    )
    if topic is None:
        return None
    flexible = is_flexible(PRODUCE, request.version)
    width = _compact_width(len(batch) + 1) if flexible else 4
    end = len(frame) - (len(_NO_TAGS) if flexible else 0)
    index_at = end - len(batch) - width - 4
    context = Context(services, PRODUCE, request.version, request.client_id, host)
    steady = ProduceTemplate(topic, frame, index_at, context)
    # What has tags, or more behind it, stands elsewhere than its lengths say.
    return (steady, index_at) if steady.batch_in(frame) == batch else None


def _compact_width(value: int) -> int:
    """How many bytes an unsigned varint takes."""
    return max(1, (value.bit_length() + 6) // 7)


def _usual_answer(topic: Topic, version: int) -> bytes:
    """The answer in which the marks stand for what was stored, its length first."""
    index, error, base, append_time, start = _MARKS
    row = PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=base,
        log_append_time_ms=append_time,
        log_start_offset=start,
    )
    told = TopicProduceResponse(name=topic.name, topic_id=topic.uuid, partition_responses=[row])
    head = encode_response_header(PRODUCE, version, 0)
    body = head + b"".join(encode_parts(ProduceResponse(responses=[told]), version))
    return len(body).to_bytes(4, "big") + body
