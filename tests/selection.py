"""Select the tests of a run: the quick set, unless paths or a marker expression are given.

- `pytest`: the quick set, in parallel. It needs nothing but Python, and its last lines report how
  many tests `make test-all` adds, and why.
- `pytest -m EXPRESSION`: what the expression selects, in parallel.
- `pytest PATH...`: everything in these paths, in this process.

With a marker expression, the tests of a file run in one process, and so do those of
tests/spark/pipeline: they share what takes long to start, as a Spark session takes 25 s of CPU.
"""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

REASONS = {
    "spark": "start Spark sessions, which need Java",
    "java": "run Java clients, which need a JDK and Maven",
    "interop": "need programs: redis-server, kcat, Prometheus, systemd, Helm, Go, Node, and others",
    "browser": "drive the console in Chromium (Debian package chromium)",
    "slow": "take long: repeated kills, failovers, more seeds, every script on fakeredis too",
    "processes": "start brokers, commands and examples: the quick set has their parts",
}
"""Why the quick set leaves tests out, by marker."""

FIXTURES = {
    "spark": "spark",
    "java": "java",
    "java_tools": "java",
    "share_tools": "java",
    "jafka": "java",
    "kafka": "java",
    "newer": "java",
    "shared_zookeeper": "java",
    "npm": "interop",
    "franz_go": "interop",
    "system_server": "interop",
}
"""The marker that a test has by using a fixture."""

CLIENTS = ("test_aiokafka", "test_confluent", "test_groups_confluent", "test_kafka_python")
"""The modules of tests/interop that the quick set has, on one layout."""

QUICK = f"not ({' or '.join(REASONS)})"
MAX_PROCESSES = 8
ONE_SESSION = "tests/spark/pipeline/"
"""The directory whose tests share a Spark session."""

_LEFT_OUT = pytest.StashKey[Counter[str]]()
_REPORT = "left_out"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    for name, why in REASONS.items():
        config.addinivalue_line("markers", f"{name}: not in the quick set, as such tests {why}")
    config.stash[_LEFT_OUT] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Set the marker expression and the processes, before xdist reads them."""
    option = config.option
    if hasattr(config, "workerinput"):
        option.markexpr = config.workerinput["markexpr"]
        return
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return
    option.markexpr = option.markexpr or QUICK
    if getattr(option, "numprocesses", 0) is None and not option.collectonly:
        # Two for each core: tests wait for servers, clients and timeouts half of their time.
        option.numprocesses = min((os.cpu_count() or 1) * 2, MAX_PROCESSES)
        option.dist = "worksteal" if option.dist == "no" else option.dist


class Together(LoadScopeScheduling):
    """Gives the tests that share what takes long to start to one process, in our order."""

    def _split_scope(self, nodeid: str) -> str:
        return ONE_SESSION if nodeid.startswith(ONE_SESSION) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together | None:
    """Keep tests together, unless they are the quick set or those of paths."""
    if config.option.markexpr in ("", QUICK):
        return None
    config.option.loadscopereorder = False
    return Together(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the marker expression to a worker, which parses the command line again."""
    node.workerinput["markexpr"] = node.config.option.markexpr


def seeds(all_of_them: Sequence[int], quick: int = 2) -> list[Any]:
    """Return the seeds of a random test: the quick set takes only the first ones."""
    later = (pytest.param(seed, marks=pytest.mark.slow) for seed in all_of_them[quick:])
    return [*all_of_them[:quick], *later]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures, before pytest deselects by markers.

    Those with Spark begin first, and of these the longest: at the end of a run they would leave
    other processes idle.
    """
    for item in items:
        for name in set(getattr(item, "fixturenames", ())) & FIXTURES.keys():
            item.add_marker(FIXTURES[name])
        if item.path.parent.name == "interop" and item.path.stem not in CLIENTS:
            item.add_marker("processes")
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if not item.get_closest_marker("spark"):
        return 2
    return 0 if item.path.stem == "test_crashes" else 1


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what the quick set leaves out, by the first marker of each test."""
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        found = next((name for name in REASONS if name in marks), "")
        item.config.stash[_LEFT_OUT][found] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a worker's counts to the controller, which collects nothing itself."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_REPORT] = dict(session.config.stash[_LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the counts of a worker; each worker has collected all tests."""
    report = getattr(node, "workeroutput", {}).get(_REPORT)
    if report is not None:
        node.config.stash[_LEFT_OUT] = Counter(report)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report what is left to `make test-all`."""
    left_out = config.stash[_LEFT_OUT]
    if config.option.markexpr != QUICK or not left_out:
        return
    terminalreporter.section("left to `make test-all`")
    for name, why in REASONS.items():
        terminalreporter.line(f"{left_out[name]:5} {name}: they {why}")
