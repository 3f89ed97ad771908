"""The event loop that brokers and measurements run on."""

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run(function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Run the function to its end, on uvloop if it is installed."""
    import anyio

    options = {"use_uvloop": find_spec("uvloop") is not None}
    return anyio.run(function, *args, backend_options=options)
