"""Find the first record at or after a timestamp: the sparse index gives where to scan from."""

from collections.abc import AsyncIterator
from functools import partial

from korvet.base.errors import ErrorCode
from korvet.log.layouts import layout_of
from korvet.log.opening import in_thread
from korvet.log.read_result import ReadRequest
from korvet.log.reader import LogReader
from korvet.scripts.append_call import FAR
from korvet.scripts.calls.partition import FindTimestampReply
from korvet.store.calls import ReadCalls
from korvet.store.errors import StoreError
from korvet.topics.table import Topic

SCAN_BYTES = 1 << 20
EXACT = 10**14
"""Times from here on, in ms, may be rounded in a log's state: Lua's numbers are doubles."""
ROUNDING = 40
"""A rounded time differs by less than its 2^-ROUNDING part."""
NEWEST = -3
NONE = -1


async def find_time(
    reader: LogReader, store: ReadCalls, topic: Topic, partition: int, timestamp: int
) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record at or after a timestamp, in ms, or None.

    Timestamp -3 finds the newest timestamp, at its first record.
    """

    async def find_start(timestamp: int) -> FindTimestampReply:
        call = topic.partition(partition).find_timestamp(timestamp=timestamp)
        reply: FindTimestampReply = await store.run(call)
        return reply

    start = await find_start(timestamp)
    if start.error:
        return None
    if timestamp != NEWEST:
        return await _find_remote(reader, store, topic, partition, timestamp) or await _first(
            _scan(reader, topic, partition, start.offset, timestamp)
        )
    best = None
    if start.timestamp != NONE:
        is_exact = start.timestamp < EXACT
        least = start.timestamp - (0 if is_exact else start.timestamp >> ROUNDING)
        scan = _scan(reader, topic, partition, start.offset, least)
        best = await (_first(scan) if is_exact else _newest(scan))
    remote = await _find_remote(reader, store, topic, partition, None)
    best = max(filter(None, (remote, best)), key=lambda row: row[0], default=None)
    if layout_of(topic).holds_batches and (best is not None or start.timestamp == NONE):
        return best
    # The index has no timestamps of foreign entries; and the newest record may have been deleted
    # or compacted away. Scan what could be newer.
    least = 0 if best is None else best[0] + 1
    start = await find_start(least)
    return await _newest(_scan(reader, topic, partition, start.offset, least)) or best


async def _first(scan: AsyncIterator[tuple[int, int]]) -> tuple[int, int] | None:
    return await anext(scan, None)


async def _newest(scan: AsyncIterator[tuple[int, int]]) -> tuple[int, int] | None:
    best: tuple[int, int] | None = None
    async for found in scan:
        if best is None or found[0] > best[0]:
            best = found
    return best


async def _find_remote(
    reader: LogReader,
    store: ReadCalls,
    topic: Topic,
    partition: int,
    timestamp: int | None,
) -> tuple[int, int] | None:
    """Return the first record in segments at or after the timestamp; None: the newest."""
    if reader.remote is None:
        return None
    start = await reader.remote.find_timestamp(topic, partition, timestamp)
    if start is None:
        return None
    least = start[0] if timestamp is None else timestamp
    key = topic.partition(partition).log
    first = max(start[1], int(await store.submit_command("HGET", key, "start") or 0))
    return await _first(_scan(reader, topic, partition, first, least))


async def _scan(
    reader: LogReader, topic: Topic, partition: int, offset: int, timestamp: int
) -> AsyncIterator[tuple[int, int]]:
    """Yield (timestamp, offset) of each record from `offset` on with at least that timestamp."""
    layout = layout_of(topic)
    while True:
        result = await reader.read(ReadRequest(topic, partition, offset, SCAN_BYTES))
        if result.error == ErrorCode.KAFKA_STORAGE_ERROR:
            raise StoreError("a segment could not be read")
        if result.error or not result.entries:
            return
        for entry in result.entries:
            find = partial(layout.timestamps_of, topic, entry, min(timestamp, FAR))
            for time, at in await in_thread(find) if layout.holds_batches else find():
                if time >= timestamp and at >= offset:
                    yield time, at
        offset = result.entries[-1].last + 1
