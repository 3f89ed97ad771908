"""An object store with a cache of what was read from it on the local disk."""

from pathlib import Path

from korvet.base.metrics import Metrics
from korvet.config.values import Settings
from korvet.remote_log.disk_cache import DiskCache
from korvet.remote_log.read_limit import ReadLimit
from korvet.remote_log.store import SegmentStore

FOLDER = "chunk-cache"
"""Folder of the data directory for the cache, by default."""


class CachedSegmentStore(SegmentStore):
    """A store whose reads are repeated from the disk; they do not count for the limit."""

    def __init__(
        self, url: str, metrics: Metrics, limit: ReadLimit, cache: DiskCache | None
    ) -> None:
        super().__init__(url, metrics, limit=limit)
        self._cache = cache
        if cache is not None:
            metrics.chunk_reads.ask_rows = lambda: {("hit",): cache.hits, ("miss",): cache.misses}
            metrics.chunk_bytes.ask = lambda: {(): cache.size}

    async def get(self, name: str, start: int, end: int) -> memoryview:
        """Return the object's bytes from `start` to below `end`."""
        if self._cache is None:
            return await super().get(name, start, end)
        found = await self._cache.read(name, start, end)
        if found is None:
            found = await super().get(name, start, end)
            self._cache.write(name, start, end, found)
        return found

    async def delete(self, name: str) -> None:
        """Delete the object, if it exists, and its parts on the disk."""
        await super().delete(name)
        await self.forget(name)

    async def forget(self, name: str) -> None:
        """Remove the object's parts from the disk: some are corrupt, as the store sent them."""
        if self._cache is not None:
            await self._cache.forget(name)


def open_store(
    url: str, settings: Settings, data_dir: str, processes: int, metrics: Metrics, limit: ReadLimit
) -> SegmentStore:
    """Return the store at `url`, with a cache on the disk if it is an object store."""
    size = settings.integer("fetch.chunk.cache.size")
    if url.startswith(("file:", "memory:")) or not size:
        return SegmentStore(url, metrics, limit=limit)
    folder = settings.text_of("fetch.chunk.cache.path") or str(Path(data_dir) / FOLDER)
    cache = DiskCache(Path(folder).absolute(), size, processes)
    return CachedSegmentStore(url, metrics, limit, cache)
