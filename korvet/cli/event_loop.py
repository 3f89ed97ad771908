"""The event loop that brokers and measurements run on."""

import os
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run(function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Run the function to its end, on uvloop if it is installed."""
    import anyio

    # libuv would use io_uring for epoll: two more system calls each time a socket pauses.
    os.environ.setdefault("UV_USE_IO_URING", "0")
    options = {"use_uvloop": find_spec("uvloop") is not None}
    return anyio.run(function, *args, backend_options=options)
