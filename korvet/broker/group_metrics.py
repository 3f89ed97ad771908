"""Consumer group metrics for /metrics: members, and lag in records, of a limited number of groups.

One broker process at a time updates them, by lease; the others report none, so that sums are right.
Rows above the limits are left out, smallest lag first.
"""

from collections.abc import Mapping

from korvet.context import Services
from korvet.groups.lag import PartitionLag, list_lags

GROUPS = 200
"""Max groups per update; of more, those that Redis returns first."""
ROWS = 1000
"""Max rows of lag."""

Labels = tuple[str, ...]


class GroupGauges:
    """Rows of the two group metrics as of the last update."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._members: dict[Labels, float] = {}
        self._lag: dict[Labels, float] = {}
        services.metrics.group_members.ask = self.members
        services.metrics.group_lag.ask = self.lag

    def members(self) -> Mapping[Labels, float]:
        return self._members

    def lag(self) -> Mapping[Labels, float]:
        return self._lag

    def clear(self) -> None:
        """Report no rows: another process does."""
        self._members, self._lag = {}, {}

    async def look(self) -> None:
        """Update the rows."""
        services = self._services
        members: dict[Labels, float] = {}
        rows: list[tuple[str, PartitionLag]] = []
        for name in await services.groups.registry.list_some(GROUPS):
            size = await services.store.command("HGET", services.keys.group(name).group, "size")
            if size is None:
                continue
            members[(name,)] = int(size)
            found = await list_lags(services.store, services.keys, services.topics, name)
            rows += ((name, row) for row in found)
        rows.sort(key=lambda pair: -pair[1].lag)
        self._members = members
        self._lag = {(name, row.topic, str(row.partition)): row.lag for name, row in rows[:ROWS]}
