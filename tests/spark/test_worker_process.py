"""Tests of the settings of a Python process that Spark reuses."""

import gc
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest

from korvet import freed_memory
from korvet.spark import worker_process


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Record calls of gc.freeze instead of freezing the objects of the test process."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(freed_memory, "retain", lambda kept: None)
    worker_process.freeze_loaded.cache_clear()
    yield calls
    worker_process.freeze_loaded.cache_clear()


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
from korvet import freed_memory
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
