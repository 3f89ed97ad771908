"""Check the memory that a console costs once all of its pages were visited."""

import compileall
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import korvet
from korvet.console.routes import PAGES
from korvet.testing.bench.load import resident_bytes
from tests.support.raw_client import until

pytestmark = pytest.mark.processes

CLOSED_TO_OPEN_MB = 24
"""Max growth: 12 MB with the first pages, 6 MB once the checks of the overview have run."""


def test_all_pages_together_cost_a_few_megabytes(tmp_path: Path) -> None:
    compileall.compile_dir(korvet.__path__[0], quiet=2)  # to compile a module takes memory too
    command = [sys.executable, "-m", "korvet", "--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as broker:
        try:
            grown = growth(broker)
        finally:
            broker.terminate()
    assert grown < CLOSED_TO_OPEN_MB * 1e6


def growth(broker: "subprocess.Popen[str]") -> int:
    """Return the bytes that the process grows by while all pages are visited."""
    assert broker.stdout is not None
    url = [broker.stdout.readline() for _ in range(2)][1].removeprefix("console at ").strip()
    # It answers 503 for as long as Redis loads the scripts.
    assert until(lambda: httpx.get(f"{url}/readyz", timeout=30).status_code == 200)
    closed = resident_bytes([broker.pid])
    values = {"topic": "t", "partition:int": "0", "offset:int": "0"}
    for page in PAGES:
        path = page.path
        for name, value in values.items():
            path = path.replace(f"{{{name}}}", value)
        assert httpx.get(url + path, params={"id": "g"}, timeout=30).status_code in (200, 404), path
    return resident_bytes([broker.pid]) - closed
