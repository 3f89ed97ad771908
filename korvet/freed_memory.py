"""Keep freed memory in the process: malloc gives it back otherwise, and fresh pages cost time."""

import ctypes
import sys
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MAX_HEAP = 32 << 20
"""The highest value that glibc takes for the size from which on a block is mapped by itself."""


@cache
def retain(size: int) -> None:
    """Keep up to that many freed bytes, if malloc is glibc's."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, min(size // 2, _MAX_HEAP))
            mallopt(_M_TRIM_THRESHOLD, size)
