"""Check that the comparison of a closed and an open console runs, and pairs its turns."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.console import summary

pytestmark = pytest.mark.processes


def test_both_sides_are_measured_in_turn() -> None:
    words = "--rounds 1 --seconds 0.3 --megabytes 20 --groups 30 --warm 0 --case p1k"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.console", *words.split()],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["label"] for line in lines] == ["closed", "open"]
    assert all(line["records"] > 0 and line["cpu_s_per_gb"] > 0 for line in lines)
    assert "| p1k | records_per_s |" in done.stdout


def test_the_ratio_is_the_median_of_the_pairs() -> None:
    rates = {"closed": (100, 200, 400), "open": (90, 400, 400)}
    lines = [
        {"case": "p1k", "label": label, "records_per_s": rate, "turn": turn}
        for label, row in rates.items()
        for turn, rate in enumerate(row)
    ]
    assert "| p1k | records_per_s | 200 | 400 | 1.000 |" in summary(lines)
