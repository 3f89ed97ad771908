"""Memory of the Redis servers, and counts of what is in them, read while a process is scraped."""

from korvet.keys import Keys
from korvet.metrics import Labels, Metrics
from korvet.store.async_store import AsyncStore


class RedisGauges:
    """Rows of the Redis metrics as of the last update."""

    def __init__(self, store: AsyncStore, keys: Keys, metrics: Metrics) -> None:
        self._store = store
        self._keys = keys
        self._counts = {"topics": 0, "transactional_ids": 0}
        self._metrics = metrics
        self._used: dict[Labels, float] = {}
        self._most: dict[Labels, float] = {}
        metrics.redis_used_memory.ask = lambda: self._used
        metrics.redis_max_memory.ask = lambda: self._most
        metrics.topics.ask = lambda: {(): self._counts["topics"]}
        metrics.transactional_ids.ask = lambda: {(): self._counts["transactional_ids"]}

    async def update(self) -> None:
        """Update the rows, if this process is scraped."""
        if not self._metrics.is_scraped:
            return
        servers = (await self._store.info("memory")).values()
        self._used = {(str(place),): int(info["used_memory"]) for place, info in servers}
        fields = await self._store.command("HLEN", self._keys.topics())
        self._counts = {
            "topics": max(0, int(fields) - 1),  # one field is the table's version
            "transactional_ids": await self._store.command("ZCARD", self._keys.transactions()),
        }
        self._most = {(str(place),): int(info.get("maxmemory", 0)) for place, info in servers}
