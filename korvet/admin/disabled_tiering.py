"""Segments of a topic that stops to be tiered: kept by a refusal, or deleted."""

from collections.abc import Sequence

from korvet.config.topic_policy import REMOTE
from korvet.keys import Keys
from korvet.store.calls import AsyncCalls
from korvet.topics.table import Topic

TIERING = (REMOTE, "cleanup.policy")
"""Configs whose change can end tiered storage of a topic."""
SEGMENTS_WOULD_STAY = (
    "The topic has records in the remote store, and would not be tiered any more. To delete them, "
    "set `remote.storage.enable=false,remote.log.delete.on.disable=true`. To keep them and copy no "
    "others, set `remote.storage.enable=true,remote.log.copy.disable=true`."
)
AT_ONCE = 100
"""Segments that one call removes."""


async def with_segments(store: AsyncCalls, keys: Keys, topic: Topic) -> list[int]:
    """Return the partitions that have segments."""
    return [
        number
        for number in range(topic.partitions)
        if await store.command("EXISTS", keys.partition(topic.name, number).segments)
    ]


async def drop_segments(
    store: AsyncCalls, keys: Keys, topic: Topic, numbers: Sequence[int]
) -> None:
    """Remove all segments from these partitions' logs.

    A broker's background task deletes their objects, and repeats this after a crash.
    """
    for number in numbers:
        removed = AT_ONCE
        while removed == AT_ONCE:
            call = keys.partition(topic.name, number, topic.id).drop_segments(
                delay_ms=topic.policy.file_delete_delay_ms, most=AT_ONCE
            )
            removed = (await store.run(call)).removed
