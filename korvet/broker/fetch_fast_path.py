"""Answer a Fetch that differs from an earlier one only in partition and offset, from segments.

A consumer that catches up repeats one request with other offsets. Decoding it, a task and the
encoding of its response cost as much as the read of 1 MB from the page cache.

Rules
- A template is learned from a decoded request for one partition whose records are in segments: its
  frame except for correlation id, partition index and offset; its response except for its numbers.
- A frame matches only if every other byte is the template's, and topic, settings, principal and the
  ACL rules are unchanged. Any other frame is decoded.
- A matching frame is answered at once, or decoded like any other: if the partition's state is not
  fresh, the offset is not in segments, the read has to wait or fails, or transactions were aborted.
"""

import struct
from time import perf_counter, time

from msgspec.structs import replace

from korvet.broker.dispatch import Request
from korvet.broker.receive_buffer import Frame
from korvet.broker.request_decoder import FETCH
from korvet.context import Services
from korvet.fetch.leader_epoch import check_leader_epoch
from korvet.fetch.partition_reader import READ_COMMITTED, TOPIC_IDS_SINCE, takes_batches
from korvet.fetch.record_age import MAX_TIMESTAMP_AT
from korvet.log.recent_states import RecentState, RecentStates
from korvet.remote_log.reader import ReadyBatches, RemoteLogReader
from korvet.security.acl import Operation, ResourceType
from korvet.security.authorizer import RulesUnreadable
from korvet.security.session import Session
from korvet.topics.table import Topic
from korvet.wire.headers import decode_request_header, encode_response_header, is_flexible
from korvet.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from korvet.wire.primitives import UVARINT
from korvet.wire.records import Buffer
from korvet.wire.schema import encode, encode_parts

MAX_TEMPLATES = 4
"""Templates of one connection."""
MAX_MISSES = 16
FULL_FETCH_EPOCHS = (0, -1)
LAST_STABLE_SINCE, LOG_START_SINCE, LEADER_EPOCH_SINCE = 4, 5, 9
_AFTER_CORRELATION_ID = 8
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")
_SIZE_AND_ID = struct.Struct(">ii")
_INDEX, _OFFSET = 0x76543210, 0x123456789ABCDEF
_NUMBERS = (0x76543210, 0, 0x123456789ABCDEF, 0x23456789ABCDEF1, 0x3456789ABCDEF12)
"""Placeholders of partition index, error, high watermark, last stable offset and log start."""


class FetchTemplate:
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
        body, version = request.body, request.version
        assert isinstance(body, FetchRequest)
        self._topic = topic
        self._services = services
        self._settings = services.settings
        self._session = session
        self._principal = session.principal
        self._client_id = request.client_id
        self._decisions = services.authorizer.decisions
        self._committed = body.isolation_level == READ_COMMITTED
        self._min_bytes = body.min_bytes
        most = min(body.max_bytes, services.settings.integer("fetch.max.bytes"))
        self._max_bytes = max(0, min(body.topics[0].partitions[0].partition_max_bytes, most))
        self._index_at = index_at
        self._offset_at = index_at + (8 if version >= LEADER_EPOCH_SINCE else 4)
        self._length = len(frame)
        self._start = bytes(frame[:4])
        self._middle = bytes(frame[_AFTER_CORRELATION_ID:index_at])
        self._epoch = bytes(frame[index_at + 4 : self._offset_at])
        self._end = bytes(frame[self._offset_at + 8 :])
        self._is_flexible = is_flexible(FETCH, version)
        count = 5 if version >= LOG_START_SINCE else 4
        self._row = struct.Struct(">ihqqq"[: count + 1])
        self._head, self._between, self._tail = self._split_response(version)

    def _split_response(self, version: int) -> tuple[bytes, bytes, bytes]:
        """Return a response's bytes before its numbers, up to its records' length, after them."""
        index, error, end, stable, start = _NUMBERS
        data = PartitionData(
            partition_index=index,
            error_code=error,
            high_watermark=end,
            last_stable_offset=stable,
            log_start_offset=start,
            aborted_transactions=[] if self._committed else None,
            records=[b"\0"],
        )
        topic = FetchableTopicResponse(
            topic=self._topic.name, topic_id=self._topic.uuid, partitions=[data]
        )
        first, _, *last = encode_parts(FetchResponse(responses=[topic]), version)
        head = encode_response_header(FETCH, version, 0) + first
        numbers = self._row.pack(*self._numbers(*_NUMBERS))
        at = head.index(numbers)
        between = head[at + len(numbers) : -1 if self._is_flexible else -4]
        return head[4:at], between, b"".join(last)

    def _numbers(self, *numbers: int) -> tuple[int, ...]:
        return numbers[: len(self._row.format) - 1]

    def matches(self, frame: Frame) -> bool:
        """Return whether the frame is the template's except for its numbers."""
        offset_at, index_at = self._offset_at, self._index_at
        return (
            len(frame) == self._length
            and frame[_AFTER_CORRELATION_ID:index_at] == self._middle
            and frame[offset_at + 8 :] == self._end
            and frame[index_at + 4 : offset_at] == self._epoch
            and frame[:4] == self._start
        )

    def answer(self, frame: Frame) -> list[Buffer] | None:
        """Return the response to a frame that matches, None if it must be decoded."""
        began = perf_counter()
        if not self.is_current():
            return None
        (index,) = _INT32.unpack_from(frame, self._index_at)
        (offset,) = _INT64.unpack_from(frame, self._offset_at)
        states, remote = _readers(self._services)
        state = states.fresh(self._topic, index) if states is not None else None
        if state is None or remote is None or offset < state.start:
            return None
        most = self._max_bytes
        if offset >= state.local_start and not self._is_copy_read(remote, index, offset, state):
            return None
        if most > self._services.response_memory.available:
            return None
        ready = remote.read_now(self._topic, index, offset, most)
        if ready is None or not self._is_enough(ready, offset, state):
            return None
        self._count(ready, perf_counter() - began)
        return self._response(frame, index, state, ready.data)

    def is_current(self) -> bool:
        """Return whether nothing has changed that decides on the response."""
        services = self._services
        return (
            services.settings is self._settings
            and services.topics.is_current(self._topic)
            and self._session.principal == self._principal
            and services.authorizer.is_current(self._decisions)
            and services.stream_reads.find_member(self._client_id) is None
        )

    def _is_copy_read(
        self, remote: RemoteLogReader, index: int, offset: int, state: RecentState
    ) -> bool:
        """Return whether a segment is to serve records that Redis has too."""
        cache = self._services.log_reader.cache
        return (
            offset < state.copied
            and cache.is_copy_read(self._topic, index, offset, self._max_bytes)
            and remote.serves_copies
        )

    def _is_enough(self, ready: ReadyBatches, offset: int, state: RecentState) -> bool:
        """Return whether the batches complete the fetch, without aborted transactions."""
        if self._committed and ready.segment.aborted_in(offset, ready.after - 1):
            return False
        end = state.last_stable if self._committed else state.end
        return len(ready.data) >= self._min_bytes or ready.after < end

    def _count(self, ready: ReadyBatches, seconds: float) -> None:
        metrics, size = self._services.metrics, len(ready.data)
        metrics.remote_fetched_bytes.add(size)
        metrics.fetched(self._topic.name, ready.records, size)
        timestamp = _INT64.unpack_from(ready.data, MAX_TIMESTAMP_AT)[0]
        if timestamp >= 0:
            metrics.fetch_age_seconds.observe(max(0.0, time() - timestamp / 1000))
        metrics.fetch_work_seconds.observe(seconds)
        metrics.answered("Fetch", "NONE", seconds)

    def _response(
        self, frame: Frame, index: int, state: RecentState, data: memoryview
    ) -> list[Buffer]:
        numbers = self._numbers(index, 0, state.end, state.last_stable, state.start)
        length = UVARINT[len(data) + 1] if self._is_flexible else _INT32.pack(len(data))
        head = self._head + self._row.pack(*numbers) + self._between + length
        size = 4 + len(head) + len(data) + len(self._tail)
        (correlation_id,) = _INT32.unpack_from(frame, 4)
        first = _SIZE_AND_ID.pack(size, correlation_id) + head
        return [first, data, self._tail] if self._tail else [first, data]


class FetchTemplates:
    """The templates of one connection's fetches."""

    def __init__(self, services: Services, session: Session) -> None:
        self._services = services
        self._session = session
        self._templates: list[FetchTemplate] = []
        self._misses = 0
        self._quotas = services.quotas.version

    @property
    def is_empty(self) -> bool:
        """Return whether there is no template."""
        return not self._templates

    def answer(self, frame: Frame) -> list[Buffer] | None:
        """Return the response to a Fetch that matches a template; None: decode it."""
        services = self._services
        if not self._templates or services.interceptor or services.tracing is not None:
            return None
        if self._quotas != services.quotas.version:
            self._quotas = services.quotas.version
            self._templates.clear()
        for template in self._templates:
            if template.matches(frame):
                return template.answer(frame)
        return None

    def learn(self, frame: Frame, request: object) -> None:
        """Make a template of a request for records in segments that matched none.

        After MAX_MISSES only each whose number is a power of two is examined: requests of such a
        client rarely repeat.
        """
        if not isinstance(request, Request):
            return
        topic = self._topic_of(request)
        if topic is None:
            return
        for each in self._templates:
            if each.matches(frame):
                if each.is_current():
                    return  # its read had to wait
                self._templates.remove(each)
                break
        self._misses += 1
        if self._misses > MAX_MISSES and self._misses & (self._misses - 1):
            return
        index_at = _index_at(frame, request)
        if index_at is None or not self._may_read(topic):
            return
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates.append(
            FetchTemplate(topic, frame, request, index_at, self._services, self._session)
        )

    def _topic_of(self, request: Request) -> Topic | None:
        """Return the topic of a fetch of one partition from segments, None for any other."""
        body, version, services = request.body, request.version, self._services
        if not isinstance(body, FetchRequest) or len(body.topics) != 1 or request.limits:
            return None
        data, states = body.topics[0], _readers(services)[0]
        if states is None or len(data.partitions) != 1 or body.follower != -1:
            return None
        topics = services.topics
        by_id = version >= TOPIC_IDS_SINCE
        topic = topics.peek_id(data.topic_id) if by_id else topics.peek(data.topic)
        row = data.partitions[0]
        if topic is None or not takes_batches(topic, version):
            return None
        if body.session_epoch not in FULL_FETCH_EPOCHS:
            return None
        if check_leader_epoch(max(row.current_leader_epoch, -1)):
            return None
        cache, where = services.log_reader.cache, (topic, row.partition, row.fetch_offset)
        is_in_segments = cache.sizes.is_remote(*where) or cache.is_copy_read(*where, 0)
        return topic if is_in_segments else None

    def _may_read(self, topic: Topic) -> bool:
        """Return whether the client may read the topic, and no check of it is audited."""
        authorizer = self._services.authorizer
        if not authorizer.enabled:
            return True
        if authorizer.audits_all:
            return False
        try:
            return authorizer.allows(
                self._session,
                *(Operation.READ, ResourceType.TOPIC, topic.name),
                api_key=FETCH,
                client_id=None,
                audit=False,
            )
        except RulesUnreadable:
            return False


def _readers(services: Services) -> tuple[RecentStates | None, RemoteLogReader | None]:
    remote = services.log_reader.remote
    return services.log_reader.states, remote if isinstance(remote, RemoteLogReader) else None


def _index_at(frame: Frame, request: Request) -> int | None:
    """Return where the frame has its partition index, None if it is not encoded as usual."""
    body, version = request.body, request.version
    assert isinstance(body, FetchRequest)
    _, at = decode_request_header(frame)
    if encode(body, version) != frame[at:]:
        return None
    old = body.topics[0]
    marked = replace(old.partitions[0], partition=_INDEX, fetch_offset=_OFFSET)
    found = encode(replace(body, topics=[replace(old, partitions=[marked])]), version)
    epoch = _INT32.pack(marked.current_leader_epoch) if version >= LEADER_EPOCH_SINCE else b""
    place = found.find(_INT32.pack(_INDEX) + epoch + _INT64.pack(_OFFSET))
    return None if place < 0 else at + place
