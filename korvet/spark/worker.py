"""A Python process of Spark's that lives on for the next task, and what it does again each time.

Spark's daemon searches all of the process for cycles after each task, and at the start of each it
has every zip archive on the path read again: together more than a tenth of a second of CPU a task,
however small the task is. Neither finds anything in what was there before.

Rules
- Only where Spark reuses the process (it says so in the environment), never in anybody else's.
- What is loaded when the first task ends stays, so it need not be searched: `gc.freeze`.
- Up to KEPT bytes stay with the process.
- Spark's own archives do not change while it runs. Others are left to be read again.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

REUSED = "SPARK_REUSE_WORKER"
KEPT = 32 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LIBRARIES = os.path.join("python", "lib")
_settled: list[bool] = []


@contextmanager
def unsearched() -> Iterator[None]:
    """Within, nothing is searched for cycles: a quarter of what importing much takes."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def at_work() -> Iterator[None]:
    """Within, nothing is searched for cycles; behind it the process is fit for the next task."""
    if os.environ.get(REUSED):
        keep_memory()
    try:
        with unsearched():
            yield
    finally:
        if os.environ.get(REUSED):
            settle()


@cache
def keep_memory() -> None:
    """Memory that is freed stays for the next chunk, where malloc is glibc's."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, KEPT // 2)
            mallopt(_M_TRIM_THRESHOLD, KEPT)


def settle() -> None:
    """What is loaded is no longer searched, and Spark's own archives are not read again."""
    if not _settled:
        gc.collect()
        gc.freeze()
        _settled.append(True)
    for path, finder in list(sys.path_importer_cache.items()):
        if _is_own(getattr(finder, "archive", "")):
            # The next import makes a new one, of the list of files that is kept elsewhere.
            del sys.path_importer_cache[path]


def _is_own(archive: str) -> bool:
    """Whether it is one of the three that Spark itself puts on the path."""
    folder, name = os.path.split(archive)
    if os.path.basename(folder) == "jars":
        return name.startswith("spark-core_")
    return folder.endswith(_LIBRARIES) and (name == "pyspark.zip" or name.startswith("py4j-"))
