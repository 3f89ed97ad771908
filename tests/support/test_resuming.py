"""A second run does what the first one did not get done."""

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
import os

import pytest

WHAT = os.environ["WHAT"]


def test_good():
    pass


@pytest.fixture
def breaking():
    yield
    assert WHAT == "nothing"


def test_badly_cleaned(breaking):
    pass


def test_bad():
    assert WHAT == "nothing"


def test_hung():
    if WHAT == "hang":
        os._exit(1)


def test_late():
    pass
"""


def run(where: Path, what: str) -> tuple[int, str]:
    environ = {**os.environ, "KORVET_PASSED": str(where / "passed"), "WHAT": what}
    environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=where, env=environ, capture_output=True, text=True)
    return done.returncode, done.stdout


def suite(where: Path) -> None:
    (where / "test_some.py").write_text(SUITE)
    (where / "conftest.py").write_text(
        "from tests.support.resuming import register as pytest_configure\n"
    )


def test_what_failed_and_what_a_hung_test_kept_from_running_is_run_again(tmp_path: Path) -> None:
    suite(tmp_path)
    code, _ = run(tmp_path, "hang")
    assert code == 1
    assert [line.partition("::")[2] for line in (tmp_path / "passed").read_text().split()] == [
        "test_good"
    ]
    code, out = run(tmp_path, "nothing")
    assert code == 0
    assert "4 passed, 1 deselected" in out


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    suite(tmp_path)
    assert run(tmp_path, "fail")[0] == 1
    code, out = run(tmp_path, "fail")
    assert code == 1
    assert "1 failed, 1 passed, 3 deselected, 1 error" in out
