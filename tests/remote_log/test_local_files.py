"""Check reads of files: from page cache or disk, whole or to the end, and system errors."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from korvet.remote_log import local_files
from korvet.remote_log.local_files import LocalFiles

DATA = os.urandom(3_000_000)


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.segment").write_bytes(DATA)
    return LocalFiles(tmp_path)


def without_page_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make reads find nothing in the page cache."""

    def blocked(*_: Any) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", blocked)


async def test_bytes_of_the_page_cache_are_read_at_once(files: LocalFiles) -> None:
    for start, size in ((0, 10), (5, 1_500_000), (2_999_999, 1), (100, 2_999_900)):
        assert await files.read("c/a.segment", start, size) == DATA[start : start + size]
    assert files.hits + files.misses == 4


async def test_bytes_of_the_disk_are_read_in_a_thread(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_page_cache(monkeypatch)
    assert await files.read("c/a.segment", 7, 2_000_000) == DATA[7:2_000_007]
    assert (files.hits, files.misses) == (0, 1)


async def test_a_file_that_ends_early_gives_fewer_bytes(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        assert await files.read("c/a.segment", 2_999_990, 100) == DATA[-10:]
        assert not await files.read("c/a.segment", 4_000_000, 100)
        without_page_cache(monkeypatch)


async def test_a_missing_file_is_an_error(files: LocalFiles) -> None:
    with pytest.raises(FileNotFoundError):
        await files.read("c/b.segment", 0, 10)


async def test_concurrent_reads_have_separate_bytes(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_page_cache(monkeypatch)
    starts = range(0, 2_000_000, 100_000)
    found = await asyncio.gather(*(files.read("c/a.segment", at, 500_000) for at in starts))
    for at, each in zip(starts, found, strict=True):
        assert each == DATA[at : at + 500_000]


async def test_a_consumer_of_a_file_outside_the_page_cache_is_read_ahead_of(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(local_files, "_advise", lambda path, start: asked.append(start))
    monkeypatch.setattr(local_files, "AHEAD_BYTES", 400_000)
    with monkeypatch.context() as patch:
        without_page_cache(patch)
        await files.read("c/a.segment", 1000, 1000)
    for start in (2000, 102_000, 202_000, 302_000):
        await files.read("c/a.segment", start, 10)
    files._threads.shutdown()
    assert asked == [2000, 402_000]
