"""Check that the remote store behaves alike in a directory, in memory, on S3, Azure and Google."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from korvet.cli import run
from korvet.remote_log.recovery.snapshot import SnapshotStore
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from tests.support import object_stores
from tests.support.object_stores import ObjectStore
from tests.support.ports import free_port
from tests.support.programs import Build

pytestmark = pytest.mark.anyio
NAME = "c/0123/0/00000000000000000100-ab.segment"


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectStore]:
    with object_stores.s3() as store:
        yield store


@pytest.fixture(scope="module")
def azure(build: Build) -> Iterator[ObjectStore]:
    with object_stores.azure(build) as store:
        yield store


@pytest.fixture(scope="module")
def google() -> Iterator[ObjectStore]:
    with object_stores.google() as store:
        yield store


def use(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> SegmentStore:
    """Return the store of a bucket, with address and credentials from the environment."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return SegmentStore(store.url)


REMOTE = ["s3", *(pytest.param(each, marks=pytest.mark.interop) for each in ("azure", "google"))]


@pytest.fixture(params=["file", "memory", *REMOTE])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SegmentStore:
    if request.param in ("file", "memory"):
        return SegmentStore(f"file://{tmp_path}/logs" if request.param == "file" else "memory:///")
    return use(request.getfixturevalue(request.param), monkeypatch)


async def test_an_object_is_created_read_listed_and_deleted(store: SegmentStore) -> None:
    await store.put(NAME, b"0123456789")
    assert bytes(await store.get(NAME, 2, 5)) == b"234"
    assert bytes(await store.get(NAME, 0, 10)) == b"0123456789"
    assert await store.names("c/0123") == [NAME]
    assert await store.names("c/9") == []
    await store.delete(NAME)
    await store.delete(NAME)
    assert await store.names("c/0123") == []


async def test_folders_and_sizes_are_listed(store: SegmentStore) -> None:
    names = ["c/metadata/1.snapshot", "c/0123/0/a.segment", "d/0123/0/a.segment"]
    for name in names:
        await store.put(name, b"0123456789")
    assert await store.folders("") == ["c", "d"]
    assert await store.folders("c") == ["0123", "metadata"] and await store.folders("x") == []
    assert [(name, size) for name, _, size in await store.listing("d")] == [(names[2], 10)]
    assert await store.read(names[0]) == b"0123456789"
    for name in names:
        await store.delete(name)
    with pytest.raises(RemoteStorageError, match="read failed"):
        await store.read(names[0])


async def test_the_second_of_two_snapshots_with_one_number_is_refused(store: SegmentStore) -> None:
    snapshots = SnapshotStore(store, "c")
    listed = await snapshots.numbers()
    await snapshots.write(b"one", listed)
    with pytest.raises(RemoteStorageError):
        await snapshots.write(b"other", listed)
    assert await snapshots.numbers() == [1]
    await store.delete("c/metadata/00000000000000000001.snapshot")


async def test_an_object_is_never_replaced(store: SegmentStore) -> None:
    await store.put(NAME, b"first")
    with pytest.raises(RemoteStorageError, match=r"00100-ab\.segment: write failed"):
        await store.put(NAME, b"other")
    assert bytes(await store.get(NAME, 0, 5)) == b"first"
    await store.delete(NAME)


async def test_a_missing_or_short_object_is_an_error(store: SegmentStore) -> None:
    with pytest.raises(RemoteStorageError, match=r"ab\.segment: read failed") as caught:
        await store.get(NAME, 0, 5)
    assert "\n" not in str(caught.value)
    await store.put(NAME, b"0123456789")
    for start, end in ((5, 11), (10, 12), (50, 60)):
        with pytest.raises(RemoteStorageError, match=r"ab\.segment"):
            await store.get(NAME, start, end)
    await store.delete(NAME)


async def test_a_store_that_is_away_fails_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's default is 10 repetitions within 3 minutes; a copy's lease ends after 1."""
    environment = object_stores.s3_environment(f"http://127.0.0.1:{free_port()}")
    store = use(ObjectStore("s3://logs/prefix", environment), monkeypatch)
    began = monotonic()
    with pytest.raises(RemoteStorageError, match="read failed"):
        await store.get(NAME, 0, 5)
    assert monotonic() - began < 10
    with pytest.raises(RemoteStorageError, match="write failed"):
        await store.put(NAME, b"data")


@pytest.mark.parametrize(
    "url",
    [
        "relative",
        "ftp://host/x",
        "s3://",
        "file:///proc/none/x",
        "file://data/segments",
        "file://./data",
        "file://",
    ],
)
def test_a_url_that_cannot_be_opened_is_an_error_with_a_sentence(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RemoteStorageError, match=r"cannot be (opened|created)|must be absolute"):
        SegmentStore(url)
    assert run(["restore", "--from", url, "--redis", "redis://127.0.0.1:1"]) == 2
    assert url in capsys.readouterr().err


async def test_a_directory_that_is_away_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    store = SegmentStore(f"file://{folder}")
    await store.put(NAME, b"data")
    folder.rename(tmp_path / "away")
    with pytest.raises(RemoteStorageError):
        await store.get(NAME, 0, 4)
    (tmp_path / "away").rename(folder)
    assert bytes(await store.get(NAME, 0, 4)) == b"data"


def test_a_directory_is_opened_without_the_library_that_a_start_would_wait_for(
    tmp_path: Path,
) -> None:
    script = (
        "import sys, asyncio, korvet.broker.server\n"
        "from korvet.remote_log.store import SegmentStore\n"
        f"store = SegmentStore({tmp_path.as_uri()!r})\n"
        "assert 'obstore' not in sys.modules\n"
        "asyncio.run(store.load())\n"
        "assert 'obstore' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
