"""Large batches below a log's end are sent from where they were received.

Rules
- Only batches that are not cached, and only if they fill the fetch (`ReadCache.is_catch_up`).
- The state is read before the entries; topic id, start and local start after them, in one write.
- What needs a look at each entry, or another read, is left to the caller: rows, or nothing.
"""

from korvet.log.batch_reply import Batches, BatchReply
from korvet.log.read_cache import ReadCache
from korvet.log.read_request import ReadRequest
from korvet.log.recent_states import RecentState


def is_catch_up(request: ReadRequest, offset: int, cache: ReadCache) -> bool:
    """Return whether large batches are expected that are to be read from Redis."""
    topic, policy = request.topic, request.topic.policy
    return (
        request.batches
        and policy.storage_format == "batch"
        and policy.offset_mode != "bytes"
        and not policy.compact
        and not policy.log_append_time
        and cache.is_catch_up(topic, request.partition, offset, request.max_bytes)
    )


def find_batches(reply: BatchReply, request: ReadRequest, state: RecentState) -> Batches | None:
    """Return the batches to send as they are; None if the entries must be looked at.

    The state was read before the entries, or is newer.
    """
    offset = request.offset
    if not reply.has(request.topic.id, offset) or offset < max(state.start, reply.local_start):
        return None
    if request.committed and state.stable is not None:
        return None
    found = reply.take(offset, request.max_bytes, request.epoch_of(state.epoch))
    if found is None or 2 * found.size < request.max_bytes:
        return None
    # A transaction that began at or above the end in the state may be open.
    return None if request.committed and found.next > state.end else found
