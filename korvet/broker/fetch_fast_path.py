"""Answer a Fetch that differs from an earlier one only in partition and offset, without decoding.

A consumer that catches up repeats one request with other offsets. Decoding it, a task and the
encoding of its response cost as much as the read of 1 MB from the page cache.

Rules
- A template is learned from a decoded request for one partition whose records are in segments, or
  are large batches far below the end: its frame except for correlation id, partition index and
  offset; its response except for its numbers.
- A frame matches only if every other byte is the template's, and topic, settings, principal and the
  ACL rules are unchanged. Any other frame is decoded.
"""

from korvet.broker import fetch_answers
from korvet.broker.dispatch import Request
from korvet.broker.fetch_template import FetchTemplate, index_at
from korvet.broker.network.receive_buffer import Frame
from korvet.broker.network.request_decoder import FETCH
from korvet.context import Services
from korvet.fetch.leader_epoch import check_leader_epoch
from korvet.fetch.partition_reader import READ_COMMITTED, TOPIC_IDS_SINCE, takes_batches
from korvet.log.catch_up import is_catch_up
from korvet.log.read_request import ReadRequest
from korvet.security.acl import Operation, ResourceType
from korvet.security.authorizer import RulesUnreadable
from korvet.security.session import Session
from korvet.topics.table import Topic
from korvet.wire.messages.fetch import FetchPartition, FetchRequest
from korvet.wire.records import Buffer

MAX_FRAME_BYTES = 1024
"""Bytes of a frame that becomes a template: a client id alone may have 32 KB."""
MAX_TEMPLATES = 4
"""Templates of one connection."""
MAX_MISSES = 16
FULL_FETCH_EPOCHS = (0, -1)


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

    def answer(self, frame: Frame) -> list[Buffer] | fetch_answers.PendingFetch | None:
        """Return the response to a Fetch that matches a template, now or later; None: decode it."""
        services = self._services
        if not self._templates or services.interceptor or services.tracing is not None:
            return None
        if self._quotas != services.quotas.version:
            self._quotas = services.quotas.version
            self._templates.clear()
        for template in self._templates:
            if template.matches(frame):
                return fetch_answers.answer(template, frame)
        return None

    def learn(self, frame: Frame, request: object) -> None:
        """Make a template of a request of a consumer that catches up, which matched none.

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
        at = index_at(frame, request) if len(frame) <= MAX_FRAME_BYTES else None
        if at is None or not self._may_read(topic):
            return
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates.append(
            FetchTemplate(topic, frame, request, at, self._services, self._session)
        )

    def _topic_of(self, request: Request) -> Topic | None:
        """Return the topic of a fetch of one partition in catch-up, None for any other."""
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
        if body.session_epoch not in FULL_FETCH_EPOCHS:
            return None
        if check_leader_epoch(max(row.current_leader_epoch, -1)):
            return None
        return topic if self._is_catch_up(topic, row, body) else None

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
                Operation.READ,
                ResourceType.TOPIC,
                topic.name,
                api_key=FETCH,
                client_id=None,
                audit=False,
            )
        except RulesUnreadable:
            return False
