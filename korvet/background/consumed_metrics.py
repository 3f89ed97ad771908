"""Metric of `retention.consumed`: the records that each group holds.

One broker process at a time updates it, by lease; the others report no rows.
"""

from korvet.groups.consumed import list_held
from korvet.keys import Keys
from korvet.metrics import Labels, Metrics
from korvet.store.async_store import AsyncStore
from korvet.topics.table import TopicTable

ROWS = 1000
"""Max rows of the metric; the largest are shown."""


class ConsumedGauges:
    """Rows of the metric as of the last update."""

    def __init__(self, store: AsyncStore, keys: Keys, topics: TopicTable, metrics: Metrics) -> None:
        self._store = store
        self._keys = keys
        self._topics = topics
        self._rows: dict[Labels, float] = {}
        metrics.held_records.ask = lambda: self._rows

    async def update(self) -> None:
        """Update the rows: one for each group and partition of topics with retention.consumed."""
        rows: dict[Labels, float] = {}
        for topic in await self._topics.all():
            if topic.policy.consumed_by:
                for number, group, records in await list_held(self._store, self._keys, topic):
                    rows[topic.name, str(number), group] = records
        self._rows = dict(sorted(rows.items(), key=lambda row: -row[1])[:ROWS])

    def clear(self) -> None:
        """Report no rows: another process does."""
        self._rows = {}
