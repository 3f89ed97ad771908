"""Set up every run: which tests, seeded hypothesis, servers, runners, the event loop."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache
from typing import Any

import pytest
import redis.utils
from hypothesis import HealthCheck, settings

from tests.support.redis_servers import (
    redis8_server,
    redis62_server,
    redis_on_disk,
    redis_server,
    system_server,
    valkey_server,
)
from tests.support.store_runners import lua, runner

pytest_plugins = ["tests.selection", "tests.support.programs", "tests.support.shared_broker"]

__all__ = [
    "lua",
    "redis8_server",
    "redis62_server",
    "redis_on_disk",
    "redis_server",
    "runner",
    "system_server",
    "valkey_server",
]


def pytest_configure(config: pytest.Config) -> None:
    # Seeded, and without a deadline: a slow example on a busy machine is no failure.
    calm = [HealthCheck.too_slow]
    settings.register_profile(
        "seeded", deadline=None, derandomize=True, database=None, suppress_health_check=calm
    )
    settings.load_profile("seeded")
    # Otherwise each process that tests start would compile all of Korvet.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Rewriting the assertions of all test files takes 14 s; later runs read the result.
    sys.dont_write_bytecode = False
    # Each client reads its version from redis-py's metadata, which takes 2 ms.
    redis.utils.get_lib_version = cache(redis.utils.get_lib_version)
    _accept_interrupts()


def _accept_interrupts() -> None:
    """Reset SIGINT, which a shell ignores in a background job and all its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from the modules and tests: they stay until the end. It would
    visit all of them repeatedly, in each process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def log_handlers() -> Iterator[None]:
    """The end of a test undoes its log setup: the stderr that it captured is closed then.

    Commands that run in the test process also change its umask.
    """
    root = logging.getLogger("korvet")
    before = (root.handlers, root.level, root.propagate)
    os.umask(0o022)
    yield
    root.handlers, root.level, root.propagate = before


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The event loop of async tests: that of the broker."""
    return "asyncio", {"use_uvloop": True}
