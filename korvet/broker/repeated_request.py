"""Recognise a request that differs from an earlier one of its connection only in a few numbers.

Decoding a small request and encoding its response cost more than its records (decision 10). Both
repeat from request to request, except for a few numbers.

Rules
- A template is made of a decoded request for one partition: its frame except for correlation id,
  session epoch, partition index and what its class leaves out after that; its response except for
  its numbers.
- A frame matches only if every other byte is the template's. A template is used only while topic,
  settings, principal and the ACL rules are unchanged. Any other frame is decoded.
- After MAX_TEMPLATES requests that matched none, only each whose number is a power of two makes a
  template: requests of such a client rarely repeat.
"""

import struct
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from korvet.broker.dispatch import Request
from korvet.broker.network.receive_buffer import Frame
from korvet.context import Services
from korvet.security.session import Session
from korvet.topics.table import Topic
from korvet.wire.headers import decode_request_header, encode_response_header, is_flexible
from korvet.wire.schema import Message, encode, encode_parts

MAX_BYTES = 1024
"""Bytes of a request without its records: a client id alone may have 32 KB."""
MAX_TEMPLATES = 16
"""Max templates of one connection and API."""
INDEX, EPOCH = 0x76543210, 0x65432107
"""Placeholders of a request's partition index and session epoch."""
NUMBERS = (INDEX, 0, 0x123456789ABCDEF, 0x23456789ABCDEF1, 0x3456789ABCDEF12)
"""Placeholders of a response's partition index, error and offsets."""
INT32 = struct.Struct(">i")
_LOG_START_SINCE = 5
"""The first version of Produce and of Fetch whose response has the log start offset."""
_AFTER_CORRELATION_ID = 8
_SIZE_AND_ID = struct.Struct(">ii")


class RepeatedRequest(ABC):
    """The constant bytes of a request and of its response: a template."""

    def __init__(
        self,
        topic: Topic,
        frame: Frame,
        request: Request,
        index_at: int,
        services: Services,
        session: Session,
    ) -> None:
        key, version = request.api.key, request.version
        self.topic = topic
        self.version = version
        self.services = services
        self._settings = services.settings
        self._session = session
        self._principal = session.principal
        self._decisions = services.authorizer.decisions
        self._start = bytes(frame[:4])
        self._index_at = index_at
        self.epoch_at = index_at
        """Where the frame has its session epoch; that of the index if it has none."""
        self._is_flexible = is_flexible(key, version)
        self._count = 5 if version >= _LOG_START_SINCE else 4
        self._row = struct.Struct(">ihqqq"[: self._count + 1])
        first, *self._more_parts = encode_parts(self._response_to(request.body), version)
        head = encode_response_header(key, version, 0) + first
        numbers = self._row.pack(*NUMBERS[: self._count])
        at = head.index(numbers)
        self._head, self._after = head[4:at], head[at + len(numbers) :]
        self._size = len(head)

    @abstractmethod
    def _response_to(self, body: Any) -> Message:
        """Return a response to the request with the placeholders NUMBERS."""

    def matches(self, frame: Frame) -> bool:
        """Return whether a frame with these bytes up to its partition index is like the request."""
        return frame.startswith(self._start)

    def is_current(self) -> bool:
        """Return whether nothing has changed that decides on the response."""
        services = self.services
        return (
            services.settings is self._settings
            and services.topics.is_current(self.topic)
            and self._session.principal == self._principal
            and services.authorizer.is_current(self._decisions)
        )

    def begin_response(self, frame: Frame, more: int, numbers: tuple[int, ...]) -> bytes:
        """Return the response to the frame up to its numbers; so many bytes more follow."""
        (correlation_id,) = INT32.unpack_from(frame, 4)
        row = self._row.pack(*numbers[: self._count])
        return _SIZE_AND_ID.pack(self._size + more, correlation_id) + self._head + row + self._after


Template = TypeVar("Template", bound=RepeatedRequest)


class RepeatedRequests(ABC, Generic[Template]):
    """The templates of one connection's requests of one API."""

    template: type[Template]

    def __init__(self, services: Services, session: Session) -> None:
        self._services = services
        self._session = session
        self._templates: dict[bytes, Template] = {}
        """By the bytes between correlation id and partition index, without the session epoch."""
        self._places: list[tuple[int, int]] = []
        """Where frames have their session epoch and their partition index."""
        self._misses = 0
        self._quotas = services.quotas.version

    @property
    def is_empty(self) -> bool:
        """Return whether there is no template."""
        return not self._templates

    def find(self, frame: Frame) -> Template | None:
        """Return the template that the frame matches, None if there is none."""
        if self._quotas != self._services.quotas.version:
            self._quotas = self._services.quotas.version
            self._templates.clear()
        for places in self._places:
            template = self._templates.get(_key(frame, *places))
            if template is not None:
                return template if template.matches(frame) else None
        return None

    def learn(self, frame: Frame, request: Request) -> None:
        """Make a template of a request that was decoded."""
        topic = self._topic_of(request)
        if topic is None:
            return
        known = self.find(frame)
        if known is not None and known.is_current():
            return  # Its batch was refused, or its read had to wait.
        self._misses += 1
        if self._misses > MAX_TEMPLATES and self._misses & (self._misses - 1):
            return
        places = self._find_places(frame, request)
        if places is None or not self._is_allowed(topic):
            return
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
            self._places.clear()
        template = self.template(topic, frame, request, places[1], self._services, self._session)
        template.epoch_at = places[0]
        self._templates[_key(frame, *places)] = template
        if places not in self._places:
            self._places.append(places)

    def _find_places(self, frame: Frame, request: Request) -> tuple[int, int] | None:
        """Return where the frame has its session epoch and its index, None if it is unusual."""
        _, at = decode_request_header(frame)
        marked = encode(self._marked(request.body), request.version)
        mark = INT32.pack(INDEX)
        if at + len(marked) > MAX_BYTES or marked.count(mark) != 1:
            return None
        if request.body is None or encode(request.body, request.version) != frame[at:]:
            return None
        index, epoch = marked.index(mark), marked.find(INT32.pack(EPOCH))
        return at + (index if epoch < 0 else epoch), at + index

    @abstractmethod
    def _topic_of(self, request: Request) -> Topic | None:
        """Return the topic of a request that may make a template, None for any other."""

    @abstractmethod
    def _marked(self, body: Any) -> Message:
        """Return the request with placeholders, and without records."""

    def _is_allowed(self, topic: Topic) -> bool:
        """Return whether requests for the topic need no further check of the client's rights."""
        return True


def _key(frame: Frame, epoch_at: int, index_at: int) -> bytes:
    start = bytes(frame[_AFTER_CORRELATION_ID:epoch_at])
    return start if epoch_at == index_at else start + frame[epoch_at + 4 : index_at]
