"""A run that goes on where one was broken off: CI's second try, after a failure or a hung test.

Where KORVET_PASSED names a file, every test that passes has its name put there at once, and no test
that stands there is run again.
"""

import os
from pathlib import Path

import pytest

PASSED = "KORVET_PASSED"


class Resuming:
    """Belongs to one run and its file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before = set(file.read_text().splitlines()) if file.exists() else set()
        self._failed: set[str] = set()

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        left = [item for item in items if item.nodeid not in self._before]
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid in self._before])
        items[:] = left

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when == "teardown" and report.nodeid not in self._failed:
            with self._file.open("a") as out:
                out.write(f"{report.nodeid}\n")


def register(config: pytest.Config) -> None:
    """The run is such a one, where the environment says so."""
    if os.environ.get(PASSED):
        config.pluginmanager.register(Resuming(Path(os.environ[PASSED])))
