"""Tests of the settings of a Python process that Spark reuses."""

import gc
import platform
import subprocess
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path

import pytest

from korvet.base import buffers
from korvet.spark import worker_process


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Record calls of gc.freeze instead of freezing the objects of the test process."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(buffers, "retain_freed", lambda kept: None)
    monkeypatch.setattr(worker_process, "keep_archive_directories", lambda: None)
    worker_process.freeze_loaded.cache_clear()
    yield calls
    worker_process.freeze_loaded.cache_clear()


def write_archive(path: Path, *names: str) -> None:
    """Write an archive with modules of these names."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"{name}.py", "")


def test_an_archive_on_the_path_is_read_again_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    honest = zipimport.zipimporter.invalidate_caches

    def counted(self: zipimport.zipimporter) -> None:
        reads.append(self.archive)
        honest(self)

    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", counted)
    worker_process.keep_archive_directories.__wrapped__()
    path = tmp_path / "modules.zip"
    write_archive(path, "one")
    importers = [zipimport.zipimporter(str(path)) for _ in range(2)]

    def finds(name: str) -> bool:
        for each in importers:
            each.invalidate_caches()
        return all(each.find_spec(name) is not None for each in importers)

    assert finds("one") and finds("one") and not finds("two")
    write_archive(path, "one", "two")
    assert finds("two") and finds("two")
    path.unlink()
    assert not finds("two")
    assert len(reads) == 2 * 3, "the first call, the change, the removal"


def test_a_reused_process_freezes_loaded_objects_once(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(worker_process.REUSED_WORKER, "1")
    for _ in range(2):
        with worker_process.task_scope():
            assert not gc.isenabled()
        assert gc.isenabled()
    assert frozen == ["freeze"]


def test_a_process_that_is_not_reused_is_unchanged(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(worker_process.REUSED_WORKER, raising=False)
    with worker_process.task_scope():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert frozen == []


_CHUNKS = """
import os, resource, sys
from korvet.base import buffers
from korvet.spark import worker_process
os.environ[worker_process.REUSED_WORKER] = sys.argv[1]
with worker_process.task_scope():
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's malloc")
def test_a_reused_process_keeps_the_memory_of_a_chunk_for_the_next_one() -> None:
    def faults(reused: str) -> int:
        program = [sys.executable, "-c", _CHUNKS, reused]
        return int(subprocess.run(program, capture_output=True, check=True, timeout=60).stdout)

    assert faults("1") < 200
    assert faults("") > 2_000
