"""The constant bytes of a Fetch that a consumer repeats with other offsets, and of its response."""

import struct
from collections.abc import Sequence

from msgspec.structs import replace

from korvet.broker.dispatch import Request
from korvet.broker.network.receive_buffer import Frame
from korvet.broker.network.request_decoder import FETCH
from korvet.context import Services
from korvet.fetch.partition_reader import READ_COMMITTED
from korvet.log.recent_states import RecentState
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

LOG_START_SINCE, LEADER_EPOCH_SINCE = 5, 9
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
        self.topic = topic
        self.services = services
        self._settings = services.settings
        self._session = session
        self._principal = session.principal
        self._client_id = request.client_id
        self._decisions = services.authorizer.decisions
        self.committed = body.isolation_level == READ_COMMITTED
        self.min_bytes = body.min_bytes
        max_bytes = min(body.max_bytes, services.settings.integer("fetch.max.bytes"))
        self.max_bytes = max(0, min(body.topics[0].partitions[0].partition_max_bytes, max_bytes))
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
            aborted_transactions=[] if self.committed else None,
            records=[b"\0"],
        )
        topic = FetchableTopicResponse(
            topic=self.topic.name, topic_id=self.topic.uuid, partitions=[data]
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

    def position_of(self, frame: Frame) -> tuple[int, int]:
        """Return partition index and offset of a frame that matches."""
        (index,) = _INT32.unpack_from(frame, self._index_at)
        (offset,) = _INT64.unpack_from(frame, self._offset_at)
        return index, offset

    def is_current(self) -> bool:
        """Return whether nothing has changed that decides on the response."""
        services = self.services
        return (
            services.settings is self._settings
            and services.topics.is_current(self.topic)
            and self._session.principal == self._principal
            and services.authorizer.is_current(self._decisions)
            and services.stream_reads.find_member(self._client_id) is None
        )

    def response(
        self, frame: Frame, index: int, state: RecentState, records: Sequence[Buffer], size: int
    ) -> list[Buffer]:
        """Return the response to the frame: records of that many bytes, and the state's numbers."""
        numbers = self._numbers(index, 0, state.end, state.last_stable, state.start)
        length = UVARINT[size + 1] if self._is_flexible else _INT32.pack(size)
        head = self._head + self._row.pack(*numbers) + self._between + length
        whole = 4 + len(head) + size + len(self._tail)
        (correlation_id,) = _INT32.unpack_from(frame, 4)
        first = _SIZE_AND_ID.pack(whole, correlation_id) + head
        return [first, *records, self._tail] if self._tail else [first, *records]


def index_at(frame: Frame, request: Request) -> int | None:
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
    position = found.find(_INT32.pack(_INDEX) + epoch + _INT64.pack(_OFFSET))
    return None if position < 0 else at + position
