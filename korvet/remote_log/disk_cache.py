"""Parts of objects on the local disk: what an object store was asked for once is read from there.

Rules
- A part is a file, written under another name and renamed: a crash leaves no half part.
- A file ends with a CRC of its part's name and bytes. One that differs is removed, and the part is
  read from the store again.
- The object's checksums are verified by its reader. If they differ, all its parts are removed: the
  next read asks the store again.
- Processes share the directory: it is the only state. The time of a part's last use is that of its
  file. A process that has written its share of an eighth removes what was used least recently.
- If a write fails, or would leave less than MIN_FREE_BYTES on the disk, the cache is emptied: the
  log of Redis may be on that disk. Nothing is cached for REST_S then.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic, time
from typing import NamedTuple

from crc32c import crc32c

from korvet.base import logfmt
from korvet.base.metrics import Metrics
from korvet.config.values import Settings
from korvet.remote_log.store import ReadLimit, SegmentStore
from korvet.store.async_store import ignore_result

THREADS = 4
MIN_FREE_BYTES = 256 << 20
REST_S = 60.0
MAX_WRITES = 16
"""Writes in progress: parts beyond them are not cached."""
CRC_BYTES = 4
LEFT_OVER_S = 60.0
"""Age of a file under a name of a write in progress from which it is one of a crash."""
PART, TEMPORARY = ".part", ".tmp"
logger = logfmt.get("remote_log.disk_cache")


class _File(NamedTuple):
    """A file of the cache; the order is that of removal."""

    used_at: float
    path: str
    size: int


class DiskCache:
    """Up to `capacity` bytes of parts in a directory, which `processes` of one broker share."""

    def __init__(self, folder: Path, capacity: int, processes: int = 1) -> None:
        self.hits = self.misses = 0
        self.size = 0
        """Bytes in the directory when it was last looked at, and those written since."""
        self._folder = folder
        self._capacity = capacity
        self._step = max(capacity // 8 // processes, 1)
        self._written = 0
        self._writes: set[asyncio.Future[None]] = set()
        self._numbers = count()
        self._rests_until = 0.0
        self._is_failed = False
        self._threads = ThreadPoolExecutor(THREADS, "korvet-disk-cache")
        self._threads.submit(self._sweep, capacity)

    async def read(self, name: str, start: int, end: int) -> memoryview | None:
        """Return the bytes of an object from `start` to below `end`; None if they are not here."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, self._load, name, start, end)
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
        return found

    def write(self, name: str, start: int, end: int, data: memoryview) -> None:
        """Let a thread write the bytes, unless writes in progress are too many."""
        size = len(data) + CRC_BYTES
        is_welcome = len(self._writes) < MAX_WRITES and size <= self._capacity // 8
        if not is_welcome or monotonic() < self._rests_until:
            return
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._threads, self._store, name, start, end, data)
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)
        ignore_result(writing)

    async def forget(self, name: str) -> None:
        """Remove all parts of an object, those that are being written too."""
        if self._writes:
            await asyncio.wait(self._writes)
        await asyncio.get_running_loop().run_in_executor(self._threads, self._remove, name)

    # In threads.

    def _load(self, name: str, start: int, end: int) -> memoryview | None:
        path = self._path(name, start, end)
        try:
            with open(path, "rb", buffering=0) as file:
                data = memoryview(file.readall())
            part, crc = data[:-CRC_BYTES], data[-CRC_BYTES:]
            if len(part) != end - start or _crc(name, start, end, part) != crc:
                path.unlink()
                logger.warning("corrupt part in the chunk cache, reading the store", path=path)
                return None
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._fail(error)
            return None
        return part

    def _store(self, name: str, start: int, end: int, data: memoryview) -> None:
        path = self._path(name, start, end)
        temporary = path.with_name(f"{os.getpid()}-{next(self._numbers)}{TEMPORARY}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(path.parent).free - len(data) < MIN_FREE_BYTES:
                raise OSError(errno.ENOSPC, f"the disk has less than {MIN_FREE_BYTES >> 20} MiB")
            try:
                with open(temporary, "wb", buffering=0) as file:
                    _write_all(file.fileno(), data)
                    _write_all(file.fileno(), _crc(name, start, end, data))
                os.replace(temporary, path)
            except OSError:
                with suppress(OSError):
                    temporary.unlink()
                raise
        except OSError as error:
            self._fail(error)
            return
        self._is_failed = False
        self.size += len(data) + CRC_BYTES
        self._written += len(data) + CRC_BYTES
        if self._written >= self._step:
            self._written = 0
            self._sweep(self._capacity - self._capacity // 8)

    def _fail(self, error: OSError) -> None:
        """Cache nothing for a time, give the space back, and log the first failure."""
        self._rests_until = monotonic() + REST_S
        if not self._is_failed:
            self._is_failed = True
            logger.warning(
                "chunk cache failed, reading the store",
                path=self._folder,
                reason=str(error),
                advice="set fetch.chunk.cache.path, or fetch.chunk.cache.size=0 for no cache",
            )
            self._sweep(0)

    def _sweep(self, capacity: int) -> None:
        """Remove files of crashed writes, and least recently used parts beyond the capacity."""
        with suppress(OSError), self._lock() as is_held:
            if not is_held:
                return  # another process is at it
            parts, total = [], 0
            for file in self._files():
                if file.path.endswith(PART):
                    parts.append(file)
                    total += file.size
                elif file.path.endswith(TEMPORARY) and time() - file.used_at > LEFT_OVER_S:
                    _unlink(file.path)
            parts.sort()
            for file in parts:
                if total <= capacity:
                    break
                _unlink(file.path)
                total -= file.size
            self.size = total

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Yield whether this process may remove files; the lock ends with the process."""
        if not self._folder.is_dir():
            yield False
            return
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)

    def _files(self) -> Iterator[_File]:
        for folder in os.scandir(self._folder):
            if folder.is_dir(follow_symlinks=False):
                for entry in os.scandir(folder.path):
                    with suppress(FileNotFoundError):
                        state = entry.stat(follow_symlinks=False)
                        yield _File(state.st_mtime, entry.path, state.st_size)

    def _remove(self, name: str) -> None:
        some = self._path(name, 0, 0)
        own = some.name.partition("-")[0] + "-"
        with suppress(OSError):
            for entry in os.scandir(some.parent):
                if entry.name.startswith(own):
                    _unlink(entry.path)

    def _path(self, name: str, start: int, end: int) -> Path:
        digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
        return self._folder / digest[:2] / f"{digest[2:]}-{start}-{end}{PART}"


def _crc(name: str, start: int, end: int, data: memoryview) -> bytes:
    crc: int = crc32c(data, crc32c(f"{name}:{start}:{end}".encode()))
    return crc.to_bytes(CRC_BYTES)


def _write_all(descriptor: int, data: memoryview | bytes) -> None:
    """Write all bytes: on a disk that gets full, a write may take a part of them."""
    unwritten = memoryview(data)
    while unwritten:
        unwritten = unwritten[os.write(descriptor, unwritten) :]


def _unlink(path: str) -> None:
    """Remove a file; another process may have done so."""
    with suppress(OSError):
        os.unlink(path)


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
