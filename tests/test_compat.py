"""Check the folders that run clients' own test suites, and run the shortest one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMPAT = Path(__file__).parents[1] / "compat"
CLIENTS = [path.parent for path in sorted(COMPAT.glob("*/run.sh"))]


def test_each_client_has_a_script_a_list_of_tests_and_findings() -> None:
    assert [path for path in COMPAT.iterdir() if path.is_dir()] != []
    for client in filter(Path.is_dir, COMPAT.iterdir()):
        assert {path.name for path in client.iterdir()} == {"run.sh", "tests.allow", "FINDINGS.md"}
        assert f"| `{client.name}` |" in (COMPAT / "README.md").read_text()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_clients_files_are_sound(client: Path) -> None:
    for script in (client / "run.sh", COMPAT / "suite.sh"):
        assert subprocess.run(["bash", "-n", str(script)], capture_output=True).stderr == b""
    allowed = (client / "tests.allow").read_bytes().split(b"\n")
    assert allowed.pop() == b""
    assert allowed == sorted(set(allowed))
    version = re.findall(r"^version=v?(.+)$", (client / "run.sh").read_text(), re.MULTILINE)
    title, _, text = (client / "FINDINGS.md").read_text().partition("\n")
    assert [title.rpartition(" ")[2]] == version
    assert f"{len(allowed)} pass" in text


@pytest.mark.interop
def test_kafka_pythons_own_suite_passes(tmp_path: Path) -> None:
    environment = os.environ | {"COMPAT_DIR": str(tmp_path), "PYTHON": sys.executable}
    environment.pop("KORVET_BROKERS", None)
    suite = ["bash", str(COMPAT / "kafka-python" / "run.sh")]
    done = subprocess.run(suite, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
