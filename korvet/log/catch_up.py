"""Read large batches far below a log's end: they are sent from where they were received.

Rules
- Only batches that would not be cached (`ReadCache.is_catch_up`): a cached one would keep the whole
  buffer in memory.
- The state is read before the entries, the local start after them, in one write.
- What needs a look at each entry, or another read, is left to the caller: rows, or nothing.
"""

from korvet.log.batch_walk import Batches, BatchWalk
from korvet.log.entries_query import EntriesQuery
from korvet.log.read_cache import ReadCache
from korvet.log.read_request import ReadRequest
from korvet.log.read_result import Ranges, ReadResult
from korvet.log.recent_states import STATE
from korvet.store.errors import StoreUnavailable


def is_catch_up(request: ReadRequest, offset: int, cache: ReadCache) -> bool:
    """Return whether large batches are expected that only this read needs."""
    topic, policy = request.topic, request.topic.policy
    return (
        request.batches
        and policy.storage_format == "batch"
        and policy.offset_mode != "bytes"
        and not policy.compact
        and not policy.log_append_time
        and cache.is_catch_up(topic, request.partition, offset, request.max_bytes)
    )


async def read_range(
    query: EntriesQuery, ranges: Ranges, offset: int, count: int
) -> BatchWalk | None:
    """Read the state and `count` entries. None if they must be read in another way."""
    policy = query.policy
    bits = policy.offset_bits if query.has_times else None
    walk = BatchWalk(count, query.average(offset), bits)
    commands = (query.state(), query.entries(offset, count), query.local_start())
    sent = ranges.submit_range(query.key.stream, commands, walk)
    if sent is None:
        return None
    try:
        await sent
    except StoreUnavailable:
        return None
    return walk if len(walk.state) == len(STATE) else None


def find_batches(
    walk: BatchWalk, request: ReadRequest, offset: int, known_end: int, result: ReadResult
) -> Batches | None:
    """Return the batches to send as they are; None if the entries must be looked at.

    `result` has the state that was read before the entries, and `known_end` its end.
    """
    if offset < max(result.start, int(walk.local_start or 0)):
        return None
    if request.committed and result.stable is not None:
        return None
    found = walk.take(offset, request.max_bytes, result.epoch)
    if found is None or 2 * found.size < request.max_bytes:
        return None
    # A transaction that began at or above the end in the state may be open.
    return None if request.committed and found.next > known_end else found
