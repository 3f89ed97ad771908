"""The clock that measures for how long this process did not run."""

import time
from collections.abc import Callable
from functools import partial

clock: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""Return seconds since any start; a step of the wall clock changes nothing.

Linux also counts the time in which the machine is suspended.
"""
