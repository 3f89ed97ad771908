"""Finding the first record at or after a moment: the index says where to scan from."""

from collections.abc import AsyncIterator

from korvet.contents import Entry, records_in
from korvet.keys import Keys
from korvet.reading import PartitionReader, Store
from korvet.scripts import log
from korvet.scripts.log import SeekReply
from korvet.topics import Topic
from korvet.wire.records import BadBatch

SCAN_BYTES = 1 << 20
NEWEST = -3


async def find_time(
    reader: PartitionReader, store: Store, keys: Keys, topic: Topic, partition: int, moment: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with a timestamp of at least `moment`, or None.

    `moment` -3 finds the newest timestamp, at its first record.
    """

    async def sought(timestamp: int) -> SeekReply:
        call = log.seek(keys, topic.name, partition, topic_id=topic.id, timestamp=timestamp)
        reply: SeekReply = await store.run(call)
        return reply

    place = await sought(moment)
    if place.error or (moment == NEWEST and place.timestamp < 0):
        return None
    async for timestamp, at in _since(reader, topic, partition, place.offset, place.timestamp):
        return timestamp, at
    if moment != NEWEST:
        return None
    # The newest of all was deleted, or compacted away: what is left has to be looked at.
    place = await sought(0)
    best: tuple[int, int] | None = None
    async for timestamp, at in _since(reader, topic, partition, place.offset, 0):
        if best is None or timestamp > best[0]:
            best = (timestamp, at)
    return best


async def _since(
    reader: PartitionReader, topic: Topic, partition: int, offset: int, moment: int
) -> AsyncIterator[tuple[int, int]]:
    """Timestamp and offset of each record from `offset` on that is not older than `moment`."""
    while True:
        found = await reader.read(topic, partition, offset, SCAN_BYTES)
        if found.error or not found.entries:
            return
        for entry in found.entries:
            if topic.is_batch and _newest(entry.fields) < moment:
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
    """A batch entry's newest timestamp, without looking into the batch."""
    if fields[0] == b"append.time":
        return int(fields[1])
    return int(fields[fields.index(b"max.timestamp") + 1])
