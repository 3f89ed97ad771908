"""Find the first record of a share group in a partition: share.auto.offset.reset."""

from time import time

from korvet.groups.share_group import ShareGroupConfig
from korvet.log.offset_for_time import find_time
from korvet.log.reader import LogReader
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic

EARLIEST, LATEST = "earliest", "latest"


async def find_start(
    store: AsyncStore,
    reader: LogReader,
    topic: Topic,
    partition: int,
    config: ShareGroupConfig,
) -> int:
    """Return the offset; -1 if the partition no longer exists."""
    bounds = await store.run(topic.partition(partition).list_offsets())
    if bounds.error:
        return -1
    if config.auto_offset_reset == EARLIEST:
        return bounds.first
    if config.auto_offset_reset == LATEST:
        return bounds.next
    moment = max(0, int(time() * 1000) - config.reset_duration_ms)
    found = await find_time(reader, store, topic, partition, moment)
    return bounds.next if found is None else found[1]
