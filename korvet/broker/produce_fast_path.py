"""Recognise a Produce request that differs from an earlier one only in batch and partition.

Rules
- A template is made of a request for one partition. It leaves out the batch (`repeated_request`).
- A matching frame's batch goes through the same validator and appender as any other. If it is not
  stored, the frame is decoded and answered as any other request.
"""

import struct
from time import perf_counter
from typing import Protocol

from msgspec.structs import replace

from korvet import apis
from korvet.base.deferred import Deferred
from korvet.broker.dispatch import Request
from korvet.broker.network.receive_buffer import Frame
from korvet.broker.network.request_decoder import PRODUCE
from korvet.broker.repeated_request import (
    INDEX,
    INT32,
    NUMBERS,
    RepeatedRequest,
    RepeatedRequests,
)
from korvet.log.opening import OpensMuch
from korvet.produce.append import TOPIC_IDS_SINCE, PartitionAppend
from korvet.scripts.calls.partition import AppendReply
from korvet.topics.table import Topic
from korvet.wire.headers import decode_request_header
from korvet.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from korvet.wire.primitives import Fault, uvarint_tail
from korvet.wire.records import BadBatch, Buffer
from korvet.wire.schema import decode

RECORD_BATCHES_SINCE = 3
"""The first Produce version with record batches; older ones are always decoded."""
_NO_TAGS = bytes(3)
"""The end of a flexible request: no tagged fields of its partition, its topic and itself."""


class ResponseSink(Protocol):
    """The connection that the requests came from."""

    def respond(self, number: int, answer: list[Buffer] | None) -> None:
        """Take the response to the request of that number."""

    def spawn(self, request: Request, number: int) -> None:
        """Await the response to the request of that number in a task."""


class ProduceTemplate(RepeatedRequest):
    """The constant bytes of a request and of its response."""

    def _response_to(self, body: ProduceRequest) -> ProduceResponse:
        index, error, base, append_time, start = NUMBERS
        row = PartitionProduceResponse(
            index=index,
            error_code=error,
            base_offset=base,
            log_append_time_ms=append_time,
            log_start_offset=start,
        )
        topic = self.topic
        rows = TopicProduceResponse(name=topic.name, topic_id=topic.uuid, partition_responses=[row])
        return ProduceResponse(responses=[rows])

    def begin(self, frame: Frame, sink: ResponseSink, number: int) -> bool:
        """Send the batch of a frame that matches up to its index; return whether it does."""
        began = perf_counter()
        if not self.is_current():
            return False
        batch = self.batch_in(frame)
        if batch is None:
            return False
        (index,) = INT32.unpack_from(frame, self._index_at)
        if not 0 <= index < self.topic.partitions:
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
            if self._is_flexible:
                length = frame[at]
                at += 1
                if length >= 0x80:
                    length, at = uvarint_tail(frame, at, length)
                length -= 1
                end -= len(_NO_TAGS)
                if not frame.endswith(_NO_TAGS):
                    return None
            else:
                (length,) = INT32.unpack_from(frame, at)
                at += 4
        except (IndexError, struct.error, Fault):
            return None
        return memoryview(frame)[at:end] if at + length == end and length > 0 else None


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
        produce = template.services.produce
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
        numbers = self.index, 0, stored.base, stored.append_time, stored.start
        answer = template.begin_response(self._frame, 0, numbers)
        template.services.metrics.answered("Produce", "NONE", perf_counter() - self._began)
        self._sink.respond(self._number, [answer])

    def _decoded(self) -> Request:
        """Return the frame as a request whose one append has finished."""
        header, at = decode_request_header(self._frame)
        body = decode(ProduceRequest, self._frame, self.version, at, exact=False)
        in_flight = self._template.services.produce.in_flight(body, self.version)
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


class ProduceTemplates(RepeatedRequests[ProduceTemplate]):
    """The templates of one connection's produces."""

    template = ProduceTemplate

    def begin(self, frame: Frame, sink: ResponseSink, number: int) -> bool:
        """Send the batch of a frame that matches a template; return whether one does."""
        if self._services.interceptor or self._services.memory.slows:
            return False
        template = self.find(frame)
        return template is not None and template.begin(frame, sink, number)

    def _topic_of(self, request: Request) -> Topic | None:
        body, version = request.body, request.version
        if (
            not isinstance(body, ProduceRequest)
            or not isinstance(request.answer, Deferred)
            or version < RECORD_BATCHES_SINCE
            or not body.acks
            or body.transactional_id is not None
            or self._services.authorizer.audits_all
            or len(body.topic_data) != 1
            or len(body.topic_data[0].partition_data) != 1
        ):
            return None
        data, topics = body.topic_data[0], self._services.topics
        return (
            topics.peek_id(data.topic_id) if version >= TOPIC_IDS_SINCE else topics.peek(data.name)
        )

    def _marked(self, body: ProduceRequest) -> ProduceRequest:
        (topic,) = body.topic_data
        row = replace(topic.partition_data[0], index=INDEX, records=b"")
        return replace(body, topic_data=[replace(topic, partition_data=[row])])
