"""Check chunks that a thread reads ahead: verified, few, and dropped when they are of no use."""

import time
from pathlib import Path

import pytest

from korvet.remote_log import chunk_cache as read_ahead
from korvet.remote_log import local_files
from korvet.remote_log.chunk_cache import Chunks, LocalChunks, ReadAhead
from korvet.remote_log.store import ReadLimit, RemoteStorageError, SegmentStore
from korvet.wire.segments import Segment, read_segment
from tests.remote_log.test_slices import written
from tests.support.raw_client import until

DATA = written()


@pytest.fixture
def segment() -> Segment:
    return read_segment(DATA)[0]


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "a").write_bytes(DATA)
    return str(tmp_path / "a")


def chunks(path: str, segment: Segment, first: int, after: int) -> Chunks:
    size = segment.end_of(after - 1) - segment.rows.positions[first]
    return Chunks(path, segment, first, after, memoryview(bytearray(size)))


def expected(segment: Segment, first: int, after: int) -> bytes:
    return DATA[segment.rows.positions[first] : segment.end_of(after - 1)]


def test_requested_chunks_are_taken_once(path: str, segment: Segment) -> None:
    ahead = ReadAhead()
    for first, after in ((0, 4), (4, 5), (5, 9)):
        asked = chunks(path, segment, first, after)
        ahead.ask(asked)
        assert until(lambda asked=asked: asked.data is not None)
        assert ahead.take(path, first, after) == expected(segment, first, after)
        assert ahead.take(path, first, after) is None
    assert ahead.hits == 3


def test_other_chunks_than_those_requested_are_not_taken(path: str, segment: Segment) -> None:
    ahead = ReadAhead()
    asked = chunks(path, segment, 0, 4)
    ahead.ask(asked)
    assert until(lambda: asked.data is not None)
    assert ahead.take(path, 1, 4) is None and ahead.take(path, 0, 3) is None


def test_chunks_that_are_not_read_yet_are_not_waited_for(
    path: str, segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = ReadAhead()
    monkeypatch.setattr(Chunks, "read", lambda self: time.sleep(0.05))
    ahead.ask(chunks(path, segment, 0, 4))
    assert ahead.take(path, 0, 4) is None


@pytest.mark.parametrize("harm", ["flipped", "short", "missing", "not cached"])
def test_chunks_that_cannot_be_read_or_are_corrupt_are_not_taken(
    path: str, segment: Segment, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(path)
    if harm == "flipped":
        file.write_bytes(DATA[:900] + bytes([DATA[900] ^ 1]) + DATA[901:])
    elif harm == "short":
        file.write_bytes(DATA[:1000])
    elif harm == "missing":
        file.unlink()
    else:
        monkeypatch.setattr(local_files, "read_page_cache", lambda *_: False)
    asked = chunks(path, segment, 0, 2)
    asked.read()
    assert asked.data is None


def test_the_oldest_are_dropped_beyond_the_limit(
    path: str, segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "MAX_BYTES", 1 << 20)
    ahead = ReadAhead()
    last = len(segment.rows)
    asked = [chunks(path, segment, first, first + 1) for first in range(last)]
    for each in asked:
        ahead.ask(each)
    assert until(lambda: all(each.data is not None for each in asked))
    assert sum(len(each.buffer) for each in ahead._asked.values()) == ahead._size <= 1 << 20
    assert ahead.take(path, 0, 1) is None
    assert ahead.take(path, last - 1, last) == expected(segment, last - 1, last)


def test_the_thread_ends_without_work_and_another_one_continues(
    path: str, segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "IDLE_S", 0.001)
    ahead = ReadAhead()
    for _ in range(20):
        asked = chunks(path, segment, 0, 2)
        ahead.ask(asked)
        assert until(lambda asked=asked: asked.data is not None)
    assert until(lambda: ahead._thread is None)


async def test_a_reader_gets_what_was_read_ahead_or_reads_itself(
    tmp_path: Path, segment: Segment
) -> None:
    store = SegmentStore(f"file://{tmp_path}")
    await store.put("a", DATA)
    source = LocalChunks(store)
    source.read_ahead("a", segment, 3, 7)
    assert until(lambda: all(each.data is not None for each in source._ahead._asked.values()))
    (tmp_path / "a").write_bytes(DATA[:900] + bytes([DATA[900] ^ 1]) + DATA[901:])
    assert source.read_now("a", segment, 3, 7) == expected(segment, 3, 7)
    assert source.read_now("a", segment, 3, 7) == expected(segment, 3, 7)
    with pytest.raises(RemoteStorageError, match="checksum differs"):
        source.read_now("a", segment, 0, 1)
    assert source.hits >= 2 and source._ahead.hits == 1


async def test_the_limit_of_reads_counts_what_is_read_ahead(
    tmp_path: Path, segment: Segment
) -> None:
    store = SegmentStore(f"file://{tmp_path}", limit=ReadLimit(lambda: 1000))
    await store.put("a", DATA)
    source = LocalChunks(store)
    for first in range(3):
        source.read_ahead("a", segment, first, first + 1)
    assert list(source._ahead._asked) == [(f"{tmp_path}/a", 0)]
    assert source.read_now("a", segment, 5, 6) is None
