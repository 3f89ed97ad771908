"""Finding the first record at or after a moment: the index says where to scan from."""

from korvet.contents import records_in
from korvet.keys import Keys
from korvet.reading import PartitionReader, Store
from korvet.scripts import log
from korvet.topics import Topic

SCAN_BYTES = 1 << 20


async def find_time(
    reader: PartitionReader, store: Store, keys: Keys, topic: Topic, partition: int, moment: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with a timestamp of at least `moment`, or None.

    `moment` -3 finds the newest timestamp, at its first record.
    """
    sought = await store.run(
        log.seek(keys, topic.name, partition, topic_id=topic.id, timestamp=moment)
    )
    if sought.error or (moment == -3 and sought.timestamp < 0):
        return None
    offset, moment = sought.offset, sought.timestamp
    while True:
        found = await reader.read(topic, partition, offset, SCAN_BYTES)
        if found.error or not found.entries:
            return None
        for entry in found.entries:
            if topic.is_batch and _newest(entry.fields) < moment:
                continue
            for at, timestamp, *_ in records_in(topic, [entry]):
                if timestamp >= moment and at >= offset:
                    return timestamp, at
        offset = found.entries[-1].last + 1


def _newest(fields: list[bytes]) -> int:
    """A batch entry's newest timestamp, without looking into the batch."""
    if fields[0] == b"append.time":
        return int(fields[1])
    return int(fields[fields.index(b"max.timestamp") + 1])
