"""Check that the GitHub workflow runs `.ci/run`, and provides the programs that it needs."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
ON_THE_IMAGE = {"make", "go", "maven", "nodejs", "npm", "chromium", "systemd"}
"""Packages of the programs that GitHub's Ubuntu image has."""
WITH = {"redis-tools": "redis-server", "default-jdk-headless": "actions/setup-java"}
"""Packages that come with another package, or by an action."""


def steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    return list(job["steps"])


def test_the_last_step_is_the_complete_check() -> None:
    assert steps()[-1] == {"run": "bash .ci/run"}


def test_every_program_that_the_check_needs_is_provided() -> None:
    needed = set(re.findall(r"^need \S+ (\S+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
    assert needed
    provided = " ".join(step.get("run", "") + step.get("uses", "") + " " for step in steps())
    missing = {name for name in needed - ON_THE_IMAGE if WITH.get(name, name) not in provided}
    assert not missing
