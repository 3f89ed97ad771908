"""Answer a Fetch that matches a template, from segments or with large batches of Redis.

Rules
- From segments a fetch is answered at once, or decoded like any other: if the partition's state is
  not fresh, the read has to wait or fails, or transactions were aborted.
- Large batches far below the end come from a range (`log.range_reads`). One that was read ahead is
  an answer at once, one in flight is an answer later, without a task.
"""

from collections.abc import Sequence
from time import monotonic, perf_counter, time

import msgspec

from korvet.broker.fetch_template import FetchTemplate
from korvet.broker.network.receive_buffer import Frame
from korvet.fetch.record_age import max_timestamp_of
from korvet.log.range_reads import Range, RangeReads
from korvet.log.read_request import ReadRequest
from korvet.log.recent_states import RecentState
from korvet.remote_log.reader import ReadyBatches, RemoteLogReader
from korvet.wire.records import Buffer


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
        if not self.range.is_read or not template.is_current():
            return None
        state = self.ranges.state_for(self.range, self.began)
        if state is None or self.request.offset < state.start:
            return None
        return _answer_from(self, state)


def answer(template: FetchTemplate, frame: Frame) -> list[Buffer] | PendingFetch | None:
    """Return the response to a frame that matches, now or later; None if it must be decoded."""
    services = template.services
    if not template.is_current() or template.max_bytes > services.response_memory.available:
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
        template.topic, index, offset, template.max_bytes, template.committed, batches=True
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
