"""fsync of the append-only file (AOF) that the embedded Redis writes, from any process.

`disk` syncs it once a second; a broker whose producers wait for the disk syncs it at once.
"""

import os
from pathlib import Path
from threading import Lock

IDENT = "korvet"
"""The name (syslog-ident) of an embedded server, by which brokers and checks know it."""

_to_disk = getattr(os, "fdatasync", os.fsync)


class SyncedFiles:
    """The files that a server in the directory writes.

    They stay open: the kernel reports a failed write once for each of them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[tuple[int, int], int] = {}
        """Descriptors by device and inode: a rewrite of a server before 7 replaces its file."""
        self._lock = Lock()

    def sync(self) -> int:
        """Sync what the server has written; return the number of files. Raises OSError."""
        with self._lock:
            self._open_new()
            for descriptor in self._open.values():
                _to_disk(descriptor)
            return len(self._open)

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])

    def _open_new(self) -> None:
        directory = self._directory
        paths = [directory / "appendonly.aof", *(directory / "appendonlydir").glob("*.incr.aof")]
        there = set()
        for path in paths:
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # a server before 7 has one file, a newer one several, which it replaces
            status = os.fstat(descriptor)
            file = status.st_dev, status.st_ino
            if file in self._open:
                os.close(descriptor)
            else:
                self._open[file] = descriptor
            there.add(file)
        for file in self._open.keys() - there:
            os.close(self._open.pop(file))
