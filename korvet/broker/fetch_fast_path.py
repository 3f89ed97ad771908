"""Answer a Fetch that differs from an earlier one only in partition and offset, without decoding.

A consumer that catches up repeats one request with other offsets. Decoding it, a task and the
encoding of its response cost as much as the read of 1 MB from the page cache.

Rules
- A template is made of a request for one partition whose records are in segments, or are large
  batches far below the end. It leaves out the offset (`repeated_request`).
- A request with a session epoch continues a session whose one partition it names, in its turn.
- From segments a fetch is answered at once, or decoded like any other: if the partition's state is
  not fresh, the read has to wait or fails, or transactions were aborted.
- Large batches far below the end come from a range (`log.range_reads`). One that was read ahead is
  an answer at once, one in flight is an answer later, without a task.
"""

import struct
from collections.abc import Sequence
from time import monotonic, perf_counter, time

import msgspec
from msgspec.structs import replace

from korvet.broker.dispatch import Request
from korvet.broker.network.receive_buffer import Frame
from korvet.broker.network.request_decoder import FETCH
from korvet.broker.repeated_request import (
    EPOCH,
    INDEX,
    INT32,
    NUMBERS,
    RepeatedRequest,
    RepeatedRequests,
)
from korvet.context import Services
from korvet.fetch.partition_reader import READ_COMMITTED, TOPIC_IDS_SINCE, takes_batches
from korvet.fetch.record_format import max_timestamp_of
from korvet.fetch.sessions import CLOSE, OPEN, epoch_after, partitions_of
from korvet.log.leader_epochs import UNDEFINED, is_behind
from korvet.log.range_reads import Range, RangeReads, is_catch_up
from korvet.log.read_result import ReadRequest
from korvet.log.recent_states import RecentState
from korvet.remote_log.reader import ReadyBatches, RemoteLogReader
from korvet.security.acl import Operation, ResourceType
from korvet.security.authorizer import RulesUnreadable
from korvet.security.session import Session
from korvet.topics.table import Topic
from korvet.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from korvet.wire.primitives import UVARINT
from korvet.wire.records import Buffer

LEADER_EPOCH_SINCE = 9
_INT64 = struct.Struct(">q")


class FetchTemplate(RepeatedRequest):
    """The constant bytes of a request and of its response."""

    def __init__(
        self,
        topic: Topic,
        frame: Frame,
        request: Request,
        index_at: int,
        services: Services,
        session: Session,
    ) -> None:
        body = request.body
        assert isinstance(body, FetchRequest)
        self.committed = body.isolation_level == READ_COMMITTED
        self.fetch_session = services.fetch_sessions.find(body.session_id, session.principal)
        (self._asked,) = partitions_of(body.topics)
        super().__init__(topic, frame, request, index_at, services, session)
        self._client_id = request.client_id
        self.leader_epoch = self._asked.request.current_leader_epoch
        self.min_bytes = body.min_bytes
        max_bytes = min(body.max_bytes, services.settings.integer("fetch.max.bytes"))
        self.max_bytes = max(0, min(body.topics[0].partitions[0].partition_max_bytes, max_bytes))
        self._offset_at = index_at + (8 if self.version >= LEADER_EPOCH_SINCE else 4)
        self._length = len(frame)
        self._epoch = bytes(frame[index_at + 4 : self._offset_at])
        self._end = bytes(frame[self._offset_at + 8 :])
        placeholder = 1 if self._is_flexible else 4
        self._after, self._size = self._after[:-placeholder], self._size - placeholder
        self._tail = b"".join(self._more_parts[1:])

    def _response_to(self, body: FetchRequest) -> FetchResponse:
        index, error, end, stable, start = NUMBERS
        data = PartitionData(
            partition_index=index,
            error_code=error,
            high_watermark=end,
            last_stable_offset=stable,
            log_start_offset=start,
            aborted_transactions=[] if body.isolation_level == READ_COMMITTED else None,
            records=[b"\0"],
        )
        topic = FetchableTopicResponse(
            topic=self.topic.name, topic_id=self.topic.uuid, partitions=[data]
        )
        session_id = 0 if self.fetch_session is None else self.fetch_session.id
        return FetchResponse(session_id=session_id, responses=[topic])

    def matches(self, frame: Frame) -> bool:
        offset_at = self._offset_at
        return (
            len(frame) == self._length
            and frame[offset_at + 8 :] == self._end
            and frame[self._index_at + 4 : offset_at] == self._epoch
            and super().matches(frame)
        )

    def position_of(self, frame: Frame) -> tuple[int, int]:
        """Return partition index and offset of a frame that matches."""
        (index,) = INT32.unpack_from(frame, self._index_at)
        (offset,) = _INT64.unpack_from(frame, self._offset_at)
        return index, offset

    def is_next(self, frame: Frame) -> bool:
        """Return whether the frame has no session, or is the next of a session that exists."""
        session = self.fetch_session
        if self.epoch_at == self._index_at:
            return True
        (epoch,) = INT32.unpack_from(frame, self.epoch_at)
        if session is None:
            return bool(epoch == CLOSE)
        sessions, principal = self.services.fetch_sessions, self._session.principal
        return (
            epoch == session.epoch
            and sessions.find(session.id, principal) is session
            and session.has_only(self._asked)
            and self.position_of(frame)[0] == self._asked.request.partition
        )

    def _advance(self, frame: Frame, known: tuple[int, int, int]) -> None:
        """Note in the session what the client asked for, and knows after the response."""
        session = self.fetch_session
        if session is None:
            return
        (one,) = session.partitions.values()
        _, offset = self.position_of(frame)
        one.request = replace(self._asked.request, fetch_offset=offset)
        one.sent = known
        session.epoch = epoch_after(session.epoch)
        self.services.fetch_sessions.touch(session)

    def is_current(self) -> bool:
        services = self.services
        return (
            services.stream_reads.find_member(self._client_id) is None
            and not services.epochs.check(max(self.leader_epoch, UNDEFINED))
            and super().is_current()
        )

    def response(
        self, frame: Frame, index: int, state: RecentState, records: Sequence[Buffer], size: int
    ) -> list[Buffer]:
        """Return the response to the frame: records of that many bytes, and the state's numbers."""
        length = UVARINT[size + 1] if self._is_flexible else INT32.pack(size)
        more = len(length) + size + len(self._tail)
        numbers = index, 0, state.end, state.last_stable, state.start
        self._advance(frame, numbers[2:])
        first = self.begin_response(frame, more, numbers) + length
        return [first, *records, self._tail] if self._tail else [first, *records]


class PendingFetch(msgspec.Struct, eq=False):
    """A fetch that is answered once its range has arrived."""

    template: FetchTemplate
    frame: Frame
    request: ReadRequest
    range: Range
    ranges: RangeReads
    began: float

    def finish(self) -> list[Buffer] | None:
        """Return the response, None if the frame must be decoded."""
        template = self.template
        frame = self.frame
        if not (self.range.is_read and template.is_current() and template.is_next(frame)):
            return None
        state = self.ranges.state_for(self.range, self.began)
        if state is None or self.request.offset < state.start:
            return None
        return _answer_from(self, state)


def answer(template: FetchTemplate, frame: Frame) -> list[Buffer] | PendingFetch | None:
    """Return the response to a frame that matches, now or later; None if it must be decoded."""
    services = template.services
    if not (template.is_current() and template.is_next(frame)):
        return None
    if template.max_bytes > services.response_memory.available:
        return None
    index, offset = template.position_of(frame)
    reader, topic = services.log_reader, template.topic
    if reader.states is None:
        return None
    is_remote = reader.cache.sizes.is_remote(topic, index, offset)
    if is_remote or reader.cache.is_copy_read(topic, index, offset, template.max_bytes):
        state = reader.states.fresh(topic, index)
        if state is None or offset < state.start:
            return None
        return _answer_from_segments(template, frame, index, offset, state)
    return _answer_from_range(template, frame, index, offset)


def _answer_from_segments(
    template: FetchTemplate, frame: Frame, index: int, offset: int, state: RecentState
) -> list[Buffer] | None:
    began, services = perf_counter(), template.services
    remote = services.log_reader.remote
    if not isinstance(remote, RemoteLogReader):
        return None
    if is_behind(template.leader_epoch, state.epoch):
        return None
    if offset >= state.local_start and not (offset < state.copied and remote.serves_copies):
        return None
    ready = remote.read_now(template.topic, index, offset, template.max_bytes)
    if ready is None or not _is_enough(template, ready, offset, state):
        return None
    services.metrics.remote_fetched_bytes.add(len(ready.data))
    _count(template, (ready.data,), ready.records, len(ready.data), perf_counter() - began)
    return template.response(frame, index, state, (ready.data,), len(ready.data))


def _is_enough(
    template: FetchTemplate, ready: ReadyBatches, offset: int, state: RecentState
) -> bool:
    """Return whether the batches complete the fetch, without aborted transactions."""
    if template.committed and ready.segment.aborted_in(offset, ready.after - 1):
        return False
    end = state.last_stable if template.committed else state.end
    return len(ready.data) >= template.min_bytes or ready.after < end


def _answer_from_range(
    template: FetchTemplate, frame: Frame, index: int, offset: int
) -> list[Buffer] | PendingFetch | None:
    ranges = template.services.log_reader.ranges
    if ranges is None:
        return None
    request = ReadRequest(
        template.topic,
        index,
        offset,
        template.max_bytes,
        template.committed,
        batches=True,
        leader_epoch=template.leader_epoch,
    )
    found = ranges.begin(request)
    if found is None:
        return None
    pending = PendingFetch(template, frame, request, found, ranges, monotonic())
    return pending.finish() if found.sent.done() else pending


def _answer_from(pending: PendingFetch, state: RecentState) -> list[Buffer] | None:
    """Return the response with the range's batches, None if they do not complete the fetch."""
    template, request = pending.template, pending.request
    found = pending.ranges.take(pending.range, request, state)
    if found is None:
        return None
    end = state.last_stable if request.committed else state.end
    if found.size < template.min_bytes and found.next >= end:
        return None
    _count(template, found.parts, found.records, found.size, monotonic() - pending.began)
    return template.response(pending.frame, request.partition, state, found.parts, found.size)


def _count(
    template: FetchTemplate, parts: Sequence[Buffer], records: int, size: int, seconds: float
) -> None:
    metrics = template.services.metrics
    metrics.fetched(template.topic.name, records, size)
    timestamp = max_timestamp_of(parts)
    if timestamp >= 0:
        metrics.fetch_age_seconds.observe(max(0.0, time() - timestamp / 1000))
    metrics.fetch_work_seconds.observe(seconds)
    metrics.answered("Fetch", "NONE", seconds)


class FetchTemplates(RepeatedRequests[FetchTemplate]):
    """The templates of one connection's fetches."""

    template = FetchTemplate

    def answer(self, frame: Frame) -> list[Buffer] | PendingFetch | None:
        """Return the response to a Fetch that matches a template, now or later; None: decode it."""
        services = self._services
        if not self._templates or services.interceptor or services.tracing is not None:
            return None
        template = self.find(frame)
        return None if template is None else answer(template, frame)

    def _topic_of(self, request: Request) -> Topic | None:
        body, version, services = request.body, request.version, self._services
        if not isinstance(body, FetchRequest) or len(body.topics) != 1 or request.limits:
            return None
        data = body.topics[0]
        if len(data.partitions) != 1 or body.follower != -1:
            return None
        topics = services.topics
        by_id = version >= TOPIC_IDS_SINCE
        topic = topics.peek_id(data.topic_id) if by_id else topics.peek(data.topic)
        row = data.partitions[0]
        if topic is None or not takes_batches(topic, version):
            return None
        if not self._is_alone(body):
            return None
        if row.last_fetched_epoch >= 0 or services.epochs.check(max(row.current_leader_epoch, -1)):
            return None
        return topic if self._is_catch_up(topic, row, body) else None

    def _is_alone(self, body: FetchRequest) -> bool:
        """Return whether the request has no session, or names the one partition of its session."""
        if body.session_epoch == CLOSE:
            return body.session_id == 0
        session = self._services.fetch_sessions.find(body.session_id, self._session.principal)
        if session is None or body.session_epoch == OPEN or body.forgotten_topics_data:
            return False
        (one,) = partitions_of(body.topics)
        return session.has_only(one)

    def _is_catch_up(self, topic: Topic, row: FetchPartition, body: FetchRequest) -> bool:
        """Return whether the records are in segments, or are large batches far below the end."""
        cache, where = self._services.log_reader.cache, (topic, row.partition, row.fetch_offset)
        if cache.sizes.is_remote(*where) or cache.is_copy_read(*where, 0):
            return True
        if self._services.log_reader.ranges is None:
            return False
        max_bytes = max(0, min(row.partition_max_bytes, body.max_bytes))
        committed = body.isolation_level == READ_COMMITTED
        request = ReadRequest(*where, max_bytes, committed, batches=True)
        return is_catch_up(request, row.fetch_offset, cache)

    def _marked(self, body: FetchRequest) -> FetchRequest:
        (topic,) = body.topics
        marked = replace(topic, partitions=[replace(topic.partitions[0], partition=INDEX)])
        return replace(body, topics=[marked], session_epoch=EPOCH)

    def _is_allowed(self, topic: Topic) -> bool:
        authorizer = self._services.authorizer
        if not authorizer.enabled:
            return True
        if authorizer.audits_all:
            return False
        try:
            return authorizer.allows(
                self._session,
                Operation.READ,
                ResourceType.TOPIC,
                topic.name,
                api_key=FETCH,
                client_id=None,
                audit=False,
            )
        except RulesUnreadable:
            return False
