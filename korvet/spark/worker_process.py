"""Tune a Python process that Spark reuses for many tasks.

After each task Spark's daemon collects garbage over all objects of the process. Freezing what is
loaded at the end of the first task makes that cheap.

Before each task Spark calls importlib.invalidate_caches(). Python then reads the directory of
`pyspark.zip` again, once for each package in it: 85 to 95 ms.

Rules
- Change settings of the process only if Spark reuses it (SPARK_REUSE_WORKER is set).
- Freed memory up to RETAINED_BYTES stays with the process: the next chunk then needs no new pages.
- Read the directory of an archive again only if size or modification time of the archive changed.
"""

import gc
import os
import zipimport
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from korvet.base import buffers

REUSED_WORKER = "SPARK_REUSE_WORKER"
RETAINED_BYTES = 32 << 20


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection: it takes a quarter of the time of a large import."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def task_scope() -> Iterator[None]:
    """Run a task with garbage collection paused and prepare the process for the next task."""
    if os.environ.get(REUSED_WORKER):
        # The next chunk then needs no new pages.
        buffers.retain_freed(RETAINED_BYTES)
        keep_archive_directories()
    try:
        with gc_paused():
            yield
    finally:
        if os.environ.get(REUSED_WORKER):
            freeze_loaded()


@cache
def freeze_loaded() -> None:
    """Exclude all objects that exist now from later garbage collections."""
    gc.collect()
    gc.freeze()


@cache
def keep_archive_directories() -> None:
    """Let importers of archives keep a directory that they read, while the archive is unchanged."""
    importer: Any = zipimport.zipimporter
    read_again = importer.invalidate_caches

    def invalidate_caches(self: Any) -> None:
        try:
            found = os.stat(self.archive)
            state = found.st_size, found.st_mtime_ns, found.st_ino
        except OSError:
            state = None
        # Taken before the read: a change during the read is noticed by the next call.
        if state is None or getattr(self, "korvet_state", None) != state:
            read_again(self)
            self.korvet_state = state

    importer.invalidate_caches = invalidate_caches
