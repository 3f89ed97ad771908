"""Finding the first record at or after a moment: the index says where to scan from."""

from collections.abc import AsyncIterator

from korvet.keys import Keys
from korvet.log.entry import Entry, records_in
from korvet.log.read_result import Store
from korvet.log.reader import LogReader
from korvet.scripts import log
from korvet.scripts.log import FAR, FindTimestampReply
from korvet.topics.table import Topic
from korvet.wire.records import BadBatch

SCAN_BYTES = 1 << 20
NEWEST = -3
NONE = -1


async def find_time(
    reader: LogReader, store: Store, keys: Keys, topic: Topic, partition: int, moment: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with a timestamp of at least `moment`, or None.

    `moment` -3 finds the newest timestamp, at its first record.
    """

    async def sought(timestamp: int) -> FindTimestampReply:
        call = log.find_timestamp(
            keys, topic.name, partition, topic_id=topic.id, timestamp=timestamp
        )
        reply: FindTimestampReply = await store.run(call)
        return reply

    async def first(place: FindTimestampReply, timestamp: int) -> tuple[int, int] | None:
        async for found in _since(reader, topic, partition, place.offset, timestamp):
            return found
        return None

    place = await sought(moment)
    if place.error:
        return None
    if moment != NEWEST:
        return await first(place, moment)
    best = await first(place, place.timestamp) if 0 <= place.timestamp < FAR else None
    if topic.is_batch and (best is not None or place.timestamp == NONE):
        return best
    # Of a native entry the log does not know the time. Or the newest of all was deleted, or
    # compacted away: what is left has to be looked at.
    least = 0 if best is None else best[0] + 1
    place = await sought(least)
    async for found in _since(reader, topic, partition, place.offset, least):
        if best is None or found[0] > best[0]:
            best = found
    return best


async def _since(
    reader: LogReader, topic: Topic, partition: int, offset: int, moment: int
) -> AsyncIterator[tuple[int, int]]:
    """Timestamp and offset of each record from `offset` on that is not older than `moment`."""
    while True:
        found = await reader.read(topic, partition, offset, SCAN_BYTES)
        if found.error or not found.entries:
            return
        for entry in found.entries:
            if topic.is_batch and _newest(entry.fields) < min(moment, FAR):
                continue
            for timestamp, at in _times(topic, entry):
                if timestamp >= moment and at >= offset:
                    yield timestamp, at
        offset = found.entries[-1].last + 1


def _times(topic: Topic, entry: Entry) -> list[tuple[int, int]]:
    """Timestamp and offset of each record of an entry; a batch that cannot be read, which was
    stored as it came, is as one record."""
    try:
        return [(timestamp, at) for at, timestamp, *_ in records_in(topic, [entry])]
    except BadBatch:
        return [(_newest(entry.fields), entry.first)]


def _newest(fields: list[bytes]) -> int:
    """A batch entry's newest timestamp, without looking into the batch; 0 where somebody added it
    without saying any."""
    name = b"append.time" if fields[0] == b"append.time" else b"max.timestamp"
    try:
        return int(fields[fields.index(name) + 1])
    except ValueError:
        return 0
