"""Check that segments are written to a directory whole or not at all."""

import os
from pathlib import Path
from typing import Any

import pytest

from korvet.remote_log.local_files import LocalWrites
from korvet.remote_log.store import RemoteStorageError, SegmentStore

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
