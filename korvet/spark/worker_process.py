"""Tune a Python process that Spark reuses for many tasks.

After each task Spark's daemon collects garbage over all objects of the process. Freezing what is
loaded at the end of the first task makes that cheap.

Rules
- Change settings of the process only if Spark reuses it (SPARK_REUSE_WORKER is set).
- Freed memory up to RETAINED_BYTES stays with the process: the next chunk then needs no new pages.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from korvet import freed_memory

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
        freed_memory.retain(RETAINED_BYTES)
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
