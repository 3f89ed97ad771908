"""What is done for a process that Spark uses again, and only there."""

import gc
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from korvet.spark import worker

OWN = ("python/lib/pyspark.zip", "python/lib/py4j-0.10.9-src.zip", "jars/spark-core_2.13-4.1.4.jar")
OTHERS = ("python/lib/mine.zip", "pyspark.zip", "jars/other.jar")


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the collector, in place of doing it to the tests' own process."""
    asked: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: asked.append("freeze"))
    monkeypatch.setattr(worker, "_settled", [])
    monkeypatch.setattr(worker, "keep_memory", lambda: None)
    return asked


def archives(folder: Path, names: tuple[str, ...]) -> dict[str, zipimporter]:
    found = {}
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("nothing.py", "")
        found[str(path)] = zipimporter(str(path))
    return found


def test_a_process_used_again_freezes_what_it_has_once_and_forgets_sparks_own_archives(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(worker.REUSED, "1")
    others = archives(tmp_path, OTHERS)
    for _ in range(2):
        known = {**others, **archives(tmp_path, OWN)}
        monkeypatch.setattr(sys, "path_importer_cache", known)
        with worker.at_work():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert sys.path_importer_cache == others
    assert frozen == ["freeze"]


def test_any_other_process_is_left_as_it_is(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(worker.REUSED, raising=False)
    known = archives(tmp_path, OWN)
    monkeypatch.setattr(sys, "path_importer_cache", dict(known))
    with worker.at_work():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert (sys.path_importer_cache, frozen) == (known, [])


_CHUNKS = """
import os, resource, sys
from korvet.spark import worker
os.environ[worker.REUSED] = sys.argv[1]
with worker.at_work():
    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        held = [bytes([7]) * (1 << 20) for _ in range(4)]
        del held
    before = faults()
    for _ in range(20):
        held = [bytes([7]) * (1 << 20) for _ in range(4)]
        del held
    print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc is what is told")
def test_memory_of_a_chunk_serves_the_next_one_in_a_process_used_again() -> None:
    def faults(reused: str) -> int:
        program = [sys.executable, "-c", _CHUNKS, reused]
        return int(subprocess.run(program, capture_output=True, check=True, timeout=60).stdout)

    assert faults("1") < 200
    assert faults("") > 2_000
