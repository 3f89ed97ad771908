"""Memory of the Redis servers for /metrics, read while a scrape asks this process."""

from korvet.context import Services
from korvet.metrics import Labels


class RedisGauges:
    """Rows of the Redis metrics as of the last update."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._used: dict[Labels, float] = {}
        self._most: dict[Labels, float] = {}
        services.metrics.redis_used_memory.ask = lambda: self._used
        services.metrics.redis_max_memory.ask = lambda: self._most

    async def update(self) -> None:
        """Update the rows, if this process is scraped."""
        if not self._services.metrics.is_scraped:
            return
        servers = (await self._services.store.info("memory")).values()
        self._used = {(str(place),): int(info["used_memory"]) for place, info in servers}
        self._most = {(str(place),): int(info.get("maxmemory", 0)) for place, info in servers}
