"""Memory of the Redis servers for /metrics, read while a scrape asks this process."""

from korvet.metrics import Labels, Metrics
from korvet.store.async_store import AsyncStore


class RedisGauges:
    """Rows of the Redis metrics as of the last update."""

    def __init__(self, store: AsyncStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._used: dict[Labels, float] = {}
        self._most: dict[Labels, float] = {}
        metrics.redis_used_memory.ask = lambda: self._used
        metrics.redis_max_memory.ask = lambda: self._most

    async def update(self) -> None:
        """Update the rows, if this process is scraped."""
        if not self._metrics.is_scraped:
            return
        servers = (await self._store.info("memory")).values()
        self._used = {(str(place),): int(info["used_memory"]) for place, info in servers}
        self._most = {(str(place),): int(info.get("maxmemory", 0)) for place, info in servers}
