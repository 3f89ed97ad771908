"""Fixtures for pytest: put `pytest_plugins = ["korvet.testing.fixtures"]` into your conftest.py."""

from collections.abc import Iterator

import pytest

from korvet.testing.broker import Broker


@pytest.fixture
def korvet_broker() -> Iterator[Broker]:
    """Start a broker without topics for one test: `korvet_broker.log.create_topic(...)`."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def korvet_session_broker() -> Iterator[Broker]:
    """Start one broker for all tests of the session; give each test its own topics."""
    with Broker() as broker:
        yield broker
