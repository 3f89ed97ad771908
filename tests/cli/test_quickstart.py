"""Check that every command of `korvet quickstart` works."""

import os
import subprocess
from pathlib import Path

import pytest

from korvet.cli import run
from tests.cli.test_serve import broker

pytestmark = pytest.mark.processes

ROOT = str(Path(__file__).parents[2])


def steps(text: str) -> dict[str, list[str]]:
    """Return the commands of each step by its title."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line[:1].isdigit():
            found[line.partition(". ")[2]] = commands = []
        elif line.startswith("   "):
            commands.append(line.strip())
    return found


def test_every_command_of_the_tour_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KORVET_REDIS_URL", raising=False)
    with broker(cwd=tmp_path) as running:
        assert run(["quickstart", "--bootstrap", f"127.0.0.1:{running.port}"]) == 0
        tour = steps(capsys.readouterr().out)
        assert "Start a broker, in another terminal." not in tour
        said = ""
        for command in [each for commands in tour.values() for each in commands]:
            if command.endswith(" top"):
                command += " --times 1"
            done = subprocess.run(
                ["bash", "-c", command],
                env=os.environ | {"PYTHONPATH": ROOT, "PYTHONWARNINGS": "ignore"},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, (command, done.stderr)
            said += done.stdout
        assert " k1 hello\n" in said and " k2 world\n" in said
        assert "deleted tour" in said
        assert running.stop() == 0


def test_the_tour_has_the_address_of_the_running_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KORVET_REDIS_URL", raising=False)
    with broker(cwd=tmp_path) as running:
        assert run(["quickstart"]) == 0
        said = capsys.readouterr().out
        assert f"127.0.0.1:{running.port}" in said and "Start a broker" not in said
        assert running.stop() == 0


def test_the_tour_names_the_options_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    url = "redis://:s3cret@127.0.0.1:1"
    at = ["--bootstrap", "127.0.0.1:1", "--namespace", "mine", "--set", "offset.mode=dense"]
    assert run(["quickstart", *at, "--redis", url]) == 0
    out = capsys.readouterr().out
    tour = steps(out)
    (start,) = tour["Start a broker, in another terminal."]
    assert start.endswith("korvet --redis REDIS_URL --namespace mine")
    assert "s3cret" not in out and "offset.mode" not in out
    assert run(["quickstart", "--bootstrap", "here"]) == 2
    assert "--bootstrap must be HOST:PORT, not 'here'" in capsys.readouterr().err
