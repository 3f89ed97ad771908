"""Count the entries that other programs added to a partition, for retention, copies and figures."""

from korvet.store.calls import AsyncCalls
from korvet.topics.table import Topic

MOST_CALLS = 200
"""Calls of one adoption: a later one counts what is left of a large backlog."""


async def adopt(store: AsyncCalls, topic: Topic, partition: int) -> None:
    """Count the partition's foreign entries, each call a bounded number of them."""
    for _ in range(MOST_CALLS):
        reply = await store.run(topic.partition(partition).adopt())
        if not reply.more:
            return
