"""Write segments to a local directory: in threads, with few large system calls.

Rules
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import time

from korvet.wire.records import Buffer

THREADS = 4
MAX_PARTS = 1024
"""Parts of a system call: Linux's limit."""


class LocalWrites:
    """Writes files below a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._numbers = count()
        self._threads = ThreadPoolExecutor(THREADS, "korvet-copies", _interrupt_no_other)

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
