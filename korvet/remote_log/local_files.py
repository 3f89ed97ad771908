"""Reads of segments in a local directory: from the page cache at once, else in a thread.

The page cache is the cache: the broker keeps no bytes of files. After a read that found less there,
the kernel is asked to read ahead, as long as a consumer continues.
"""

import asyncio
import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from korvet.base.buffers import ReadBuffers
from korvet.remote_log.read_limit import THREADS

BUFFER_BYTES = 32 << 20
"""Memory for buffers of reads: what is sent to slow clients is beyond it, and not kept."""
AHEAD_BYTES = 4 << 20
"""Bytes that the kernel reads ahead of a consumer, half of it at a time."""
MAX_AHEAD = 1000
"""Files that are read ahead."""


class LocalFiles:
    """Reads files below a directory, in `threads` if the disk has to. Belongs to an event loop.

    A read that waits for a thread ends with its caller.
    """

    def __init__(self, root: Path, threads: int = THREADS) -> None:
        self.hits = self.misses = 0
        self._root = f"{root}/"
        self._buffers = ReadBuffers(BUFFER_BYTES)
        self._threads = ThreadPoolExecutor(threads, "korvet-segments")
        self._ahead: OrderedDict[str, int] = OrderedDict()
        """Positions up to which files are read ahead."""

    async def read(self, name: str, start: int, size: int) -> memoryview:
        """Return the bytes of a file from `start` on: fewer than asked for at its end."""
        found = self.read_cached(name, start, size)
        return await self.read_disk(name, start, size) if found is None else found

    async def read_disk(self, name: str, start: int, size: int) -> memoryview:
        """Return what `read` returns: a thread reads what the page cache lacks."""
        path, data = self._root + name, self._buffers.take(size)
        self.misses += 1
        loop = asyncio.get_running_loop()
        count = await loop.run_in_executor(self._threads, _read, path, data, start)
        self._read_ahead(name, path, start + size)
        return data[:count].toreadonly()

    def path_of(self, name: str) -> str:
        """Return the path of a file."""
        return self._root + name

    def lend(self, name: str, start: int, size: int) -> memoryview:
        """Return a buffer for a read from the page cache, into which the kernel reads ahead."""
        self._continue(name, start + size)
        return self._buffers.take(size)

    def read_cached(self, name: str, start: int, size: int) -> memoryview | None:
        """Return the bytes if the page cache has all of them, else None."""
        path, data = self._root + name, self._buffers.take(size)
        if not read_page_cache(path, data, start):
            return None
        self.hits += 1
        self._continue(name, start + size)
        return data.toreadonly()

    def _continue(self, name: str, end: int) -> None:
        """Let the kernel read further ahead of a reader that comes to `end`."""
        known = self._ahead.get(name)
        if known is not None and known - end < AHEAD_BYTES // 2:
            self._read_ahead(name, self._root + name, max(known, end))

    def _read_ahead(self, name: str, path: str, start: int) -> None:
        """Let the kernel read AHEAD_BYTES from `start` on; a thread asks: it may have to wait."""
        self._ahead[name] = start + AHEAD_BYTES
        self._ahead.move_to_end(name)
        if len(self._ahead) > MAX_AHEAD:
            self._ahead.popitem(last=False)
        if hasattr(os, "posix_fadvise"):
            asyncio.get_running_loop().run_in_executor(self._threads, _advise, path, start)


def read_page_cache(path: str, data: memoryview, start: int) -> bool:
    """Fill the buffer from the page cache. Returns False if that has not all of it."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.preadv(descriptor, [data], start, os.RWF_NOWAIT) == len(data)
        finally:
            os.close(descriptor)
    return False


def _read(path: str, data: memoryview, start: int) -> int:
    """Fill the buffer; return how many bytes the file had."""
    with open(path, "rb", buffering=0) as file:
        filled = 0
        while filled < len(data):
            file.seek(start + filled)
            count = file.readinto(data[filled:])
            if not count:
                break
            filled += count
    return filled


def _advise(path: str, start: int) -> None:
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), start, AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
