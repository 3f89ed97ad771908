"""Segments in a local directory: reads from the page cache, or in a thread, and writes in threads.

The page cache is the cache: the broker keeps no bytes of files. After a read that found less there,
the kernel is asked to read ahead, as long as a consumer continues.

Rules of writes
- A file is written and synced under another name, then linked to its own: a crash leaves no half
  file under that name, and an existing file is not replaced.
- The other name ends with `#` and a number: a listing of the store leaves such names out.
- The threads interrupt no other: SCHED_BATCH. They have no lower priority, as one that waits for a
  processor while it has the interpreter lock would stop the broker. They need that lock only
  between system calls, of which each writes up to 1,024 parts.
- What Redis still has need not be in the page cache too: without DONTNEED each file takes fresh
  pages, which costs several times the copy of its bytes.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import time

from korvet.base.buffers import ReadBuffers
from korvet.wire.records import Buffer

THREADS = 10
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


WRITE_THREADS = 4
MAX_PARTS = 1024
"""Parts of a system call: Linux's limit."""


class LocalWrites:
    """Writes files below a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._numbers = count()
        self._threads = ThreadPoolExecutor(WRITE_THREADS, "korvet-copies", _interrupt_no_other)

    async def write(self, name: str, parts: Sequence[Buffer], *, is_read_soon: bool) -> None:
        """Create the file; fails if it exists. It is on the disk when this returns."""
        loop = asyncio.get_running_loop()
        number = f"{os.getpid()}{next(self._numbers):06}"
        target = (self._root, self._root / name, number)
        await loop.run_in_executor(self._threads, _write, *target, parts, is_read_soon)

    async def delete_staged(self, prefix: str, age_s: float) -> None:
        """Delete what crashed writes left in a folder at least that long ago."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, _delete_staged, self._root / prefix, age_s)


def _delete_staged(folder: Path, age_s: float) -> None:
    for path in folder.glob("*#*"):
        with suppress(FileNotFoundError):
            if time() - path.stat().st_mtime >= age_s:
                path.unlink()


def _interrupt_no_other() -> None:
    """Let the thread wait for its turn when it wakes up, where the system can do that."""
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _write(
    root: Path, path: Path, number: str, parts: Sequence[Buffer], is_read_soon: bool
) -> None:
    staged, folders = f"{path}#{number}", _make_folders(root, path.parent)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            write_parts(descriptor, parts)
            os.fsync(descriptor)
            if not is_read_soon and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        os.link(staged, path)
    finally:
        os.unlink(staged)
    for folder in folders:
        _sync(folder)


def write_parts(descriptor: int, parts: Sequence[Buffer]) -> None:
    """Write all parts to a file."""
    views = [memoryview(part) for part in parts]
    at = 0
    while at < len(views):
        written = os.writev(descriptor, views[at : at + MAX_PARTS])
        while at < len(views) and written >= len(views[at]):
            written -= len(views[at])
            at += 1
        if written:
            views[at] = views[at][written:]


def _make_folders(root: Path, folder: Path) -> list[Path]:
    """Create the folder; return it, and those above it whose content is new."""
    found = [folder]
    for each in (folder, *folder.parents):
        if each == root or each.exists():
            break
        found.append(each.parent)
    folder.mkdir(parents=True, exist_ok=True)
    return found


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
