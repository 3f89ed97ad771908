"""Check reads and writes of local files: from page cache or disk, whole or not at all."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from korvet.remote_log import local_files
from korvet.remote_log.local_files import LocalFiles, LocalWrites
from korvet.remote_log.store import RemoteStorageError, SegmentStore

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


NAME = "cluster/topic/0/1.segment"
PARTS: list[Any] = [bytes([at % 251]) * (at % 7) for at in range(3000)]
WHOLE = b"".join(PARTS)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("is_read_soon", [False, True])
async def test_all_parts_are_written_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_read_soon: bool
) -> None:
    synced, sync = list[str](), os.fsync
    names = {each: str(each) for each in (tmp_path / NAME).parents}

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    await LocalWrites(tmp_path).write(NAME, PARTS, is_read_soon=is_read_soon)
    assert (tmp_path / NAME).read_bytes() == WHOLE
    assert [path.name for path in (tmp_path / NAME).parent.iterdir()] == ["1.segment"]
    assert "1.segment#" in synced[0]
    folders = [tmp_path / "cluster/topic/0", tmp_path / "cluster/topic", tmp_path / "cluster"]
    assert synced[1:] == [names[each] for each in (*folders, tmp_path)]


async def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.writev

    def short(descriptor: int, parts: Any) -> int:
        return write(descriptor, [b"".join(parts)[:100]])

    monkeypatch.setattr(os, "writev", short)
    await LocalWrites(tmp_path).write(NAME, PARTS, is_read_soon=True)
    assert (tmp_path / NAME).read_bytes() == WHOLE


@pytest.mark.parametrize("step", ["writev", "fsync", "link"])
async def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    store = SegmentStore(f"file://{tmp_path}")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(RemoteStorageError, match="No space left on device"):
            await store.put(NAME, PARTS)
    assert files_below(tmp_path) == []
    await store.put(NAME, PARTS)
    assert await store.read(NAME) == WHOLE


async def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    store = SegmentStore(f"file://{tmp_path}")
    await store.put(NAME, b"one")
    with pytest.raises(RemoteStorageError):
        await store.put(NAME, b"two")
    assert await store.read(NAME) == b"one"


async def test_what_a_crash_left_is_not_listed_and_is_deleted_later(tmp_path: Path) -> None:
    store = SegmentStore(f"file://{tmp_path}")
    await store.put(NAME, b"one")
    left = tmp_path / f"{NAME}#4711"
    left.write_bytes(b"half")
    assert await store.names("cluster/topic/0") == [NAME]
    await store.delete_staged("cluster/topic/0", 3600)
    assert left.exists()
    await store.delete_staged("cluster/topic/0", 0)
    assert not left.exists() and await store.read(NAME) == b"one"
    await store.delete_staged("cluster/topic/1", 0)
