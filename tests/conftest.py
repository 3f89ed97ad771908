"""Fixtures for everybody: servers, runners, the event loop."""

from typing import Any

import pytest

from tests import processes, resuming
from tests.runners import lua, runner
from tests.servers import redis62_server, redis_server, system_server, valkey_server

__all__ = [
    "lua",
    "redis62_server",
    "redis_server",
    "runner",
    "system_server",
    "valkey_server",
]


def pytest_configure(config: pytest.Config) -> None:
    processes.register(config)
    resuming.register(config)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Async tests run on the loop that the broker runs on."""
    return "asyncio", {"use_uvloop": True}
