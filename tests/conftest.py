"""Fixtures for everybody: servers, runners, the event loop."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import bytecode, resuming
from tests.support.redis_servers import redis62_server, redis_server, system_server, valkey_server
from tests.support.store_runners import lua, runner

__all__ = [
    "lua",
    "redis62_server",
    "redis_server",
    "runner",
    "system_server",
    "valkey_server",
]


def pytest_configure(config: pytest.Config) -> None:
    # Seeded, and never too slow: what takes long on a busy machine is not wrong.
    calm = [HealthCheck.too_slow]
    settings.register_profile(
        "seeded", deadline=None, derandomize=True, database=None, suppress_health_check=calm
    )
    settings.load_profile("seeded")
    bytecode.register(config)
    resuming.register(config)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Async tests run on the loop that the broker runs on."""
    return "asyncio", {"use_uvloop": True}
