"""Measure the coverage of the services' tests within the quick set: `-p tests.covered`."""

import os
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

_NAMES = (
    "admin",
    "avro",
    "base/metrics",
    "cluster",
    "config",
    "console",
    "fetch",
    "groups",
    "handlers/test_not_served.py",
    "handlers/test_repeated_names.py",
    "log/test_append_batcher.py",
    "log/test_batch_cache.py",
    "log/test_delete_records.py",
    "log/test_list_offsets.py",
    "log/test_position.py",
    "produce",
    "remote_log",
    "scripts",
    "security",
    "share",
    "topics",
    "transactions",
)
"""Tests that start no process but Redis: tracing makes them slower by two thirds."""
_TRACED = tuple(str(Path(__file__).parent / name) for name in _NAMES)

# Before pytest loads tests/conftest.py, so that the import of Korvet's modules is measured.
_coverage = coverage.Coverage()
_coverage.start()
_measures = True


def _measure(wanted: bool) -> None:
    """Start or stop the measurement, unless it is in that state."""
    global _measures
    if wanted and not _measures:
        _coverage.start()
    elif _measures and not wanted:
        _coverage.stop()
    _measures = wanted


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Stop the measurement once all tests are imported."""
    try:
        return (yield)
    finally:
        _measure(False)
        # Tests that run pytest run it without this plugin; xdist's workers have started.
        os.environ.pop("PYTEST_ADDOPTS", None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Measure this test if it is one of the services' tests."""
    _measure(str(item.path).startswith(_TRACED))


def pytest_unconfigure() -> None:
    """Write the data file of this process, which `coverage combine` reads."""
    _measure(False)
    _coverage.save()
