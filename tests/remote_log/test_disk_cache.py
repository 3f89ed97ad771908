"""Check the disk cache of reads from an object store: bounded, verified, shared, optional."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage
from time import time

import pytest

from korvet.base.metrics import Metrics
from korvet.config.values import Settings
from korvet.remote_log import disk_cache
from korvet.remote_log.chunk_cache import ChunkCache
from korvet.remote_log.disk_cache import CachedSegmentStore, DiskCache, open_store
from korvet.remote_log.known_segments import Footers
from korvet.remote_log.store import ReadLimit, RemoteStorageError, SegmentStore
from korvet.wire.segments import read_segment
from tests.remote_log.test_store import s3, use
from tests.support.object_stores import ObjectStore, s3_environment
from tests.wire.test_segments import written

__all__ = ["s3"]
pytestmark = pytest.mark.anyio
NAME = "c/0123/0/00000000000000000100-ab.segment"
PART = 1000
CAPACITY = 100 * PART
LOGGED = "chunk cache failed, reading the store"


async def idle(cache: DiskCache) -> None:
    """Wait until no write is in progress."""
    while cache._writes:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def swept(folder: Path, capacity: int) -> DiskCache:
    """Return a cache that has finished its first scan of the directory."""
    cache = DiskCache(folder, capacity)
    cache._threads.shutdown()
    return cache


async def write(cache: DiskCache, number: int, name: str = NAME) -> bytes:
    """Write part `number` of an object and return its bytes."""
    data = bytes([number % 256]) * PART
    cache.write(name, number * PART, (number + 1) * PART, memoryview(data))
    await idle(cache)
    return data


async def read(cache: DiskCache, number: int, name: str = NAME) -> bytes | None:
    found = await cache.read(name, number * PART, (number + 1) * PART)
    return None if found is None else bytes(found)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.part"))


async def test_a_part_is_read_back_by_another_process_and_after_a_restart(tmp_path: Path) -> None:
    one, two = DiskCache(tmp_path, CAPACITY, 2), DiskCache(tmp_path, CAPACITY, 2)
    assert await read(one, 0) is None
    data = await write(one, 0)
    assert (
        await read(one, 0)
        == await read(two, 0)
        == await read(DiskCache(tmp_path, CAPACITY), 0)
        == data
    )
    assert await two.read(NAME, 0, PART - 1) is None, "another range is another part"
    assert await read(two, 0, "c/0123/0/00000000000000000200-cd.segment") is None
    assert (one.hits, one.misses, two.hits, two.misses) == (1, 1, 1, 2)


async def test_the_cache_stays_within_its_size_and_keeps_what_is_used(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, CAPACITY)
    for number in range(300):
        await write(cache, number)
        os.utime(cache._path(NAME, number * PART, (number + 1) * PART), (number, number))
        assert await read(cache, 0) is not None, "read repeatedly: used last"
        assert sum(path.stat().st_size for path in parts(tmp_path)) <= CAPACITY
    assert len(parts(tmp_path)) > 80 and cache.size <= CAPACITY
    assert await read(cache, 299) is not None and await read(cache, 1) is None


async def test_a_smaller_size_is_kept_from_the_start(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, CAPACITY)
    for number in range(50):
        await write(cache, number)
    smaller = swept(tmp_path, 10 * PART)
    assert len(parts(tmp_path)) == 9 and smaller.size == 9 * (PART + disk_cache.CRC_BYTES)


@pytest.mark.parametrize("how", ["flipped", "short", "long", "empty", "swapped"])
async def test_a_changed_file_is_removed_and_not_returned(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = DiskCache(tmp_path, CAPACITY)
    await write(cache, 0)
    path = cache._path(NAME, 0, PART)
    data = bytearray(path.read_bytes())
    if how == "flipped":
        data[500] ^= 1
    elif how == "swapped":
        await write(cache, 1)
        data = bytearray(cache._path(NAME, PART, 2 * PART).read_bytes())
    path.write_bytes({"short": data[:-1], "long": data + b"x", "empty": b""}.get(how, data))
    assert await read(cache, 0) is None and not path.exists()
    assert caplog.records[-1].getMessage() == "corrupt part in the chunk cache, reading the store"
    assert await write(cache, 0) == await read(cache, 0)


def test_a_killed_writer_leaves_whole_parts_and_its_rest_is_removed(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from itertools import count\n"
        "from pathlib import Path\n"
        "from korvet.remote_log.disk_cache import DiskCache\n"
        "async def main():\n"
        f"    cache = DiskCache(Path({str(tmp_path)!r}), 1 << 30)\n"
        "    for n in count():\n"
        "        data = memoryview(bytes([n % 256]) * 1000000)\n"
        f"        cache.write({NAME!r}, n * 1000000, (n + 1) * 1000000, data)\n"
        "        await asyncio.sleep(0.001)\n"
        "        n == 20 and print('busy', flush=True)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"busy\n"
        writer.send_signal(signal.SIGKILL)
    cache, size = DiskCache(tmp_path, 1 << 30), 1_000_000

    async def read_all() -> list[memoryview | None]:
        return [await cache.read(NAME, n * size, (n + 1) * size) for n in range(200)]

    found = asyncio.run(read_all())
    whole = [(n, data) for n, data in enumerate(found) if data is not None]
    assert whole and all(bytes(data) == bytes([n % 256]) * size for n, data in whole)
    assert len(whole) == len(parts(tmp_path)), "each file with a part's name is whole"
    left = [*tmp_path.rglob("*.tmp"), parts(tmp_path)[0].with_name("1-1.tmp")]
    for path in left:
        path.write_bytes(b"half")
        os.utime(path, (0, time() - 2 * disk_cache.LEFT_OVER_S))
    swept(tmp_path, 1 << 30)
    assert not list(tmp_path.rglob("*.tmp"))


async def test_a_full_disk_empties_the_cache_and_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache, free = DiskCache(tmp_path, CAPACITY), [disk_cache.MIN_FREE_BYTES + PART]
    monkeypatch.setattr(
        disk_cache.shutil, "disk_usage", lambda path: disk_usage(path)._replace(free=free[0])
    )
    monkeypatch.setattr(disk_cache, "REST_S", 0.0)
    data = await write(cache, 0)
    assert await read(cache, 0) == data
    free[0] -= 1
    await write(cache, 1)
    assert not parts(tmp_path), "the space is freed: Redis's log may be on that disk"
    await write(cache, 2)
    assert await read(cache, 2) is None
    assert [each.getMessage() for each in caplog.records] == [LOGGED]
    free[0] += 1
    assert await write(cache, 3) == await read(cache, 3)
    free[0] -= 1
    await write(cache, 4)
    assert len(caplog.records) == 2, "another time"


async def test_after_a_failure_nothing_is_written_for_a_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "file"
    folder.write_bytes(b"")
    cache = DiskCache(folder / "cache", CAPACITY)
    for number in range(3):
        await write(cache, number)
        assert await read(cache, number) is None
    assert [each.getMessage() for each in caplog.records] == [LOGGED]
    folder.unlink()
    assert await write(cache, 4) and await read(cache, 4) is None and not folder.exists()


@pytest.fixture
def cached(
    s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CachedSegmentStore]:
    """Return the store of a bucket with a cache."""
    use(s3, monkeypatch)
    yield CachedSegmentStore(
        f"{s3.url}/cached", Metrics(), ReadLimit(), DiskCache(tmp_path / "cache", CAPACITY)
    )


async def test_the_store_is_read_once_and_deleted_objects_leave_the_disk(
    cached: CachedSegmentStore, tmp_path: Path
) -> None:
    metrics = cached._metrics
    await cached.put(NAME, b"0123456789" * 100)
    for _ in range(3):
        assert bytes(await cached.get(NAME, 10, 20)) == b"0123456789"
        assert cached._cache is not None
        await idle(cached._cache)
    assert metrics.remote_read_bytes.values[()] == 10
    rows = {sample.labels: sample.value for sample in metrics.chunk_reads.family().samples}
    assert rows == {("hit",): 2, ("miss",): 1}
    assert metrics.chunk_bytes.family().samples[0].value == 10 + disk_cache.CRC_BYTES
    await cached.delete(NAME)
    assert not parts(tmp_path)
    with pytest.raises(RemoteStorageError):
        await cached.get(NAME, 10, 20)


@pytest.mark.parametrize("at", [5, -60], ids=["batches", "footer"])
async def test_an_object_that_was_read_corrupt_is_read_from_the_store_again(
    s3: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: int
) -> None:
    use(s3, monkeypatch)
    cache = DiskCache(tmp_path / "cache", 64 << 20)
    cached = CachedSegmentStore(f"{s3.url}/corrupt{at}", Metrics(), ReadLimit(), cache)
    data, name = written(40, size=1000), f"c/{'0' * 32}/3/{100:020d}-abc.segment"
    begin = read_segment(data)[0].header.bytes
    footers, chunks = Footers(cached, lambda: 1 << 20), ChunkCache(cached, 1 << 20)

    async def read() -> memoryview:
        segment = await footers.get(name, begin, len(data))
        return await chunks.read(name, segment, 0, 1)

    bad = bytearray(data)
    bad[at] ^= 1
    await cached.put(name, bytes(bad))
    for _ in range(2):
        with pytest.raises(RemoteStorageError, match="checksum differs"):
            await read()
    await SegmentStore.delete(cached, name)
    await cached.put(name, data)
    assert data.startswith(await read())
    await idle(cache)
    assert parts(tmp_path)


@pytest.mark.parametrize(
    ("url", "size", "is_cached"),
    [
        ("file://{}/segments", "1000", False),
        ("memory:///", "1000", False),
        ("s3://logs/prefix", "0", False),
        ("s3://logs/prefix", "1000", True),
        ("gs://logs/prefix", "1000", True),
    ],
)
def test_object_stores_have_a_cache_unless_its_size_is_0(
    url: str, size: str, is_cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_environment("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    settings = Settings({"fetch.chunk.cache.size": size})
    made = open_store(url.format(tmp_path), settings, str(tmp_path), 2, Metrics(), ReadLimit())
    assert isinstance(made, CachedSegmentStore) == is_cached and isinstance(made, SegmentStore)
