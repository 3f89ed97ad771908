"""Recognise a Produce request that differs from an earlier one only in batch and partition.

Decoding a small Produce request and encoding its response cost more than its batch (decision 10).
Both repeat from request to request, except for a few numbers.

Rules
- A template is learned from a decoded request for one partition: its frame except for correlation
  id, partition index and batch; its response except for the numbers of the stored batch.
- A frame matches only if every other byte is the template's, and topic, settings, principal and the
  ACL rules are unchanged. Any other frame is decoded.
- A matching frame's batch goes through the same validator and appender as any other. If it is not
  stored, the frame is decoded and answered as any other request.
"""

import struct
from time import perf_counter
from typing import Protocol

from korvet import apis
from korvet.base.deferred import Deferred
from korvet.broker.dispatch import Request
from korvet.broker.network.receive_buffer import Frame
from korvet.broker.network.request_decoder import PRODUCE
from korvet.context import Services
from korvet.log.opening import OpensMuch
from korvet.produce.append import TOPIC_IDS_SINCE, PartitionAppend
from korvet.scripts.calls.partition import AppendReply
from korvet.security.session import Session
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

RECORD_BATCHES_SINCE = 3
"""The first Produce version with record batches; older ones are always decoded."""
MAX_HEAD_BYTES = 1024
"""Bytes of a template's head: a client id alone may have 32 KB."""
MAX_TEMPLATES = 16
"""Max templates of one connection."""
_START_OFFSET_SINCE = 5
"""The first Produce version whose response has the log start offset."""
_AFTER_CORRELATION_ID = 8
_INT32 = struct.Struct(">i")
_SIZE_AND_ID = struct.Struct(">ii")
_NO_TAGS = bytes(3)
"""The end of a flexible request: no tagged fields of its partition, its topic and itself."""
_PLACEHOLDERS = (0x76543210, 0, 0x123456789ABCDEF, 0x23456789ABCDEF1, 0x3456789ABCDEF12)


class ResponseSink(Protocol):
    """The connection that the requests came from."""

    def respond(self, number: int, answer: list[Buffer] | None) -> None:
        """Take the response to the request of that number."""

    def spawn(self, request: Request, number: int) -> None:
        """Await the response to the request of that number in a task."""


class ProduceTemplate:
    """The constant bytes of a request and of its response."""

    def __init__(
        self,
        topic: Topic,
        frame: Frame,
        index_at: int,
        version: int,
        services: Services,
        session: Session,
    ) -> None:
        self.topic = topic
        self.version = version
        self.metrics = services.metrics
        self.produce = services.produce
        self._services = services
        self._settings = services.settings
        self._session = session
        self._principal = session.principal
        self._decisions = services.authorizer.decisions
        self._flexible = is_flexible(PRODUCE, version)
        self._start = bytes(frame[:4])
        self._index_at = index_at
        self._numbers = 5 if version >= _START_OFFSET_SINCE else 4
        self._row = struct.Struct(">ihqqq" if self._numbers == 5 else ">ihqq")
        placeholders = self._row.pack(*_PLACEHOLDERS[: self._numbers])
        response = _encoded_response(topic, version)
        at = response.index(placeholders)
        self._size = len(response) - 4
        self._head, self._tail = response[8:at], response[at + len(placeholders) :]

    def begin(self, frame: Frame, sink: ResponseSink, number: int) -> bool:
        """Send the batch of a frame that matches the template; return whether it does.

        The frame is known to match from the correlation id to the partition index.
        """
        began = perf_counter()
        if not frame.startswith(self._start):
            return False
        services, topic = self._services, self.topic
        if services.settings is not self._settings or not services.topics.is_current(topic):
            return False
        if self._session.principal != self._principal:
            return False
        if not services.authorizer.is_current(self._decisions):
            return False
        batch = self.batch_in(frame)
        if batch is None:
            return False
        (index,) = _INT32.unpack_from(frame, self._index_at)
        if not 0 <= index < topic.partitions:
            return False
        append = FastAppend(self, frame, index, batch, sink, number, began)
        try:
            append.appender.prepare(append)
        except (BadBatch, OpensMuch):
            return False
        append.appender.submit(append)
        return True

    def batch_in(self, frame: Frame) -> memoryview | None:
        """Return the frame's batch; None if the frame does not end like the template."""
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
                (length,) = _INT32.unpack_from(frame, at)
                at += 4
        except (IndexError, struct.error, Fault):
            return None
        return memoryview(frame)[at:end] if at + length == end and length > 0 else None

    def response(self, frame: Frame, index: int, reply: AppendReply) -> Buffer:
        """Return the response to this frame, whose batch is stored."""
        numbers = (index, 0, reply.base, reply.append_time, reply.start)
        row = self._row.pack(*numbers[: self._numbers])
        (correlation_id,) = _INT32.unpack_from(frame, 4)
        return _SIZE_AND_ID.pack(self._size, correlation_id) + self._head + row + self._tail


class FastAppend(PartitionAppend):
    """The append of a matching frame: its reply completes the template's response."""

    __slots__ = ("_began", "_frame", "_number", "_sink", "_template")

    def __init__(
        self,
        template: ProduceTemplate,
        frame: Frame,
        index: int,
        batch: memoryview,
        sink: ResponseSink,
        number: int,
        began: float,
    ) -> None:
        produce = template.produce
        super().__init__(produce.appender, template.topic, index, batch, template.version)
        self._template = template
        self._frame = frame
        self._sink = sink
        self._number = number
        self._began = began

    def finished(self, stored: AppendReply | None) -> None:
        """Answer the request, at once if its batch is stored."""
        if stored is None:
            self._sink.spawn(self._decoded(), self._number)
            return
        template = self._template
        self.appender.stored(self, stored)
        template.metrics.answered("Produce", "NONE", perf_counter() - self._began)
        self._sink.respond(self._number, [template.response(self._frame, self.index, stored)])

    def _decoded(self) -> Request:
        """Return the frame as a request whose one append has finished."""
        header, at = decode_request_header(self._frame)
        body = decode(ProduceRequest, self._frame, self.version, at, exact=False)
        in_flight = self._template.produce.in_flight(body, self.version)
        in_flight.rows_for(body.topic_data[0]).append(self)
        in_flight.expect_reply()
        in_flight.finished(stored=False)
        return Request(
            api=apis.BY_KEY[PRODUCE],
            version=self.version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            answer=in_flight.response(),
            body=body,
            began=self._began,
        )


class TemplateCache:
    """The templates of one connection's requests."""

    def __init__(self, services: Services, session: Session) -> None:
        self._services = services
        self._session = session
        self._templates: dict[bytes, ProduceTemplate] = {}
        self._index_at: list[int] = []
        self._misses = 0
        self._quotas = services.quotas.version

    def begin(self, frame: Frame, sink: ResponseSink, number: int) -> bool:
        """Send the batch of a frame that matches a template; return whether one does."""
        if self._services.interceptor or self._services.memory.slows:
            return False
        if self._quotas != self._services.quotas.version:
            self._quotas = self._services.quotas.version
            self._templates.clear()
        for end in self._index_at:
            template = self._templates.get(bytes(frame[_AFTER_CORRELATION_ID:end]))
            if template is not None:
                return template.begin(frame, sink, number)
        return False

    def learn(self, frame: Frame, request: Request) -> None:
        """Make a template of a request that matched none.

        After MAX_TEMPLATES misses only the 32nd, the 64th and so on are examined: requests of such
        a client rarely repeat.
        """
        self._misses += 1
        if self._misses > MAX_TEMPLATES and self._misses & (self._misses - 1):
            return
        found = _learn(frame, request, self._services, self._session)
        if found is None or found[1] > MAX_HEAD_BYTES:
            return
        template, index_at = found
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
            self._index_at.clear()
        self._templates[bytes(frame[_AFTER_CORRELATION_ID:index_at])] = template
        if index_at not in self._index_at:
            self._index_at.append(index_at)


def _learn(
    frame: Frame, request: Request, services: Services, session: Session
) -> tuple[ProduceTemplate, int] | None:
    """Return the template of a decoded request and where its partition index is, or None."""
    body, version = request.body, request.version
    if (
        not isinstance(body, ProduceRequest)
        or not isinstance(request.answer, Deferred)
        or version < RECORD_BATCHES_SINCE
        or not body.acks
        or body.transactional_id is not None
        or services.authorizer.audits_all
        or len(body.topic_data) != 1
        or len(body.topic_data[0].partition_data) != 1
    ):
        return None
    data, topics = body.topic_data[0], services.topics
    by_id = version >= TOPIC_IDS_SINCE
    topic = topics.peek_id(data.topic_id) if by_id else topics.peek(data.name)
    if topic is None:
        return None
    batch = data.partition_data[0].records or b""
    flexible = is_flexible(PRODUCE, version)
    width = _compact_width(len(batch) + 1) if flexible else 4
    end = len(frame) - (len(_NO_TAGS) if flexible else 0)
    index_at = end - len(batch) - width - 4
    template = ProduceTemplate(topic, frame, index_at, version, services, session)
    # A request with tagged fields, or with bytes after its end, has its batch elsewhere.
    return (template, index_at) if template.batch_in(frame) == batch else None


def _compact_width(value: int) -> int:
    """Return the size of an unsigned varint in bytes."""
    return max(1, (value.bit_length() + 6) // 7)


def _encoded_response(topic: Topic, version: int) -> bytes:
    """Return a response, its length first, with placeholders for the stored batch's numbers."""
    index, error, base, append_time, start = _PLACEHOLDERS
    row = PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=base,
        log_append_time_ms=append_time,
        log_start_offset=start,
    )
    response = TopicProduceResponse(name=topic.name, topic_id=topic.uuid, partition_responses=[row])
    head = encode_response_header(PRODUCE, version, 0)
    body = head + b"".join(encode_parts(ProduceResponse(responses=[response]), version))
    return len(body).to_bytes(4, "big") + body
