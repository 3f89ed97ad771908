"""Run programs of the machine, and build what tests need with them, once for a run."""

import fcntl
import hashlib
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Build = Callable[..., Path]
NPM_INSTALL = ("npm", "install", "--no-audit", "--no-fund", "--silent")


def program(name: str) -> str:
    """Return the path of a program. A missing program fails the test: it is not skipped."""
    found = shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))
    assert found, f"{name} is not installed: these tests are part of the suite, install it"
    return found


def check(
    words: Sequence[str], folder: Path | None = None, seconds: float = 600, stdin: str = ""
) -> str:
    """Run a program and return its standard output. The exit status must be 0."""
    words = [program(words[0]), *words[1:]]
    done = subprocess.run(
        words, cwd=folder, input=stdin, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, f"{words[:4]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def builder(shared: Path) -> Build:
    """Return a function that runs commands in a copy of a folder, or in an empty folder, once.

    It returns the copy, which is in `shared`. Of processes that share it the first runs the
    commands, and others wait.
    """

    def built(source: Path | None, *commands: Sequence[str]) -> Path:
        files = sorted(path for path in source.rglob("*") if path.is_file()) if source else []
        inputs = [(str(path), path.read_bytes()) for path in files]
        key = hashlib.sha256(repr((inputs, commands)).encode()).hexdigest()[:16]
        folder = shared / f"built-{key}"
        done = folder.with_suffix(".done")
        with open(folder.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(source, folder) if source else folder.mkdir()
                for words in commands:
                    check(words, folder)
                done.touch()
        return folder

    return built


@pytest.fixture(scope="session")
def build(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a builder that the workers of a run share.

    Another run has its own copies, as the programs may be of other versions then.
    """
    base = tmp_path_factory.getbasetemp()
    return builder(base.parent if hasattr(pytestconfig, "workerinput") else base)
