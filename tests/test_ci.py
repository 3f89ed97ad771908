"""Check that the GitHub workflow runs `.ci/run`, and provides the programs that it needs."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
ON_THE_IMAGE = {"make", "go", "maven", "nodejs", "npm", "chromium", "systemd"}
"""Packages of the programs that GitHub's Ubuntu image has."""
WITH = {"redis-tools": "redis-server", "default-jdk-headless": "actions/setup-java"}
"""Packages that come with another package, or by an action."""


def workflow() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    return found


def steps() -> list[dict[str, Any]]:
    (job,) = workflow()["jobs"].values()
    return list(job["steps"])


def test_the_workflow_may_only_read_and_names_actions_by_commit() -> None:
    assert workflow()["permissions"] == {"contents": "read"}
    actions = [step["uses"] for step in steps() if "uses" in step]
    assert actions
    assert [each for each in actions if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []


def test_the_jobs_together_are_the_complete_check() -> None:
    (job,) = workflow()["jobs"].values()
    assert steps()[-1] == {"run": "bash .ci/run ${{ matrix.part }}"}
    parts = re.findall(r"^#   (\w+) ", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert job["strategy"]["matrix"]["part"] == parts
    assert f"parts=${{*:-{' '.join(parts)}}}" in (ROOT / ".ci" / "run").read_text()


def test_a_part_that_there_is_not_is_refused() -> None:
    found = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run"), "quick", "fast"], capture_output=True, text=True
    )
    assert (found.returncode, found.stderr) == (2, "no part fast: quick, clients or spark\n")


def test_every_program_that_the_check_needs_is_provided() -> None:
    needed = set(re.findall(r"^need \S+ (\S+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
    assert needed
    provided = " ".join(step.get("run", "") + step.get("uses", "") + " " for step in steps())
    missing = {name for name in needed - ON_THE_IMAGE if WITH.get(name, name) not in provided}
    assert not missing


def locked(name: str) -> dict[str, str]:
    """Return the versions of a file of locked packages; each must have hashes."""
    found = {}
    for entry in re.split(r"\n(?=\w)", (ROOT / "deploy" / name).read_text()):
        row = re.match(r"([\w.-]+)==(\S+)", entry)
        if row is not None:
            assert "--hash=sha256:" in entry, entry
            found[row[1]] = row[2]
    return found


def test_the_locked_packages_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    versions = locked("requirements.txt")
    for text in (*project["dependencies"], *extras["oauth"], *extras["zookeeper"]):
        wanted = Requirement(text)
        assert wanted.specifier.contains(versions[wanted.name]), text


def test_what_builds_a_release_is_locked() -> None:
    assert {"build", "hatchling", "twine"} <= locked("requirements-release.txt").keys()
