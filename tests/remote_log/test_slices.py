"""Check that a fetch from a segment reads as many blocks as its bytes allow, without a gap."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.log.read_result import ReadRequest, ReadResult
from korvet.remote_log.chunk_cache import chunk_source
from korvet.remote_log.reader import RemoteLogReader
from korvet.remote_log.store import SegmentStore
from korvet.scripts.keys import Keys
from korvet.wire import batch_builder
from korvet.wire.records import Record
from korvet.wire.segment_writer import SegmentWriter
from korvet.wire.segments import SegmentHeader, headers_in, read_segment

TOPIC_ID = "0" * 32
BATCHES = 60


def written(batches: int = BATCHES) -> bytes:
    """Return a segment of batches of 2 to 140 KB, with gaps between their offsets."""
    writer = SegmentWriter(0)
    for at in range(batches):
        value = b"v" * (1000 + at * 37 % 70 * 1000)
        rows: list[Record] = [(at * 100 + n, 5, None, value, []) for n in range(2)]
        writer.add(batch_builder.build(rows, base=at * 100))
    names = {"id": "ab", "cluster_id": "c", "topic": "t", "topic_id": TOPIC_ID}
    header = msgspec.convert(
        {
            **names,
            "partition": 0,
            "first": 0,
            "last": 0,
            "records": 0,
            "bytes": 0,
            "max_timestamp": 0,
            "storage_format": "batch",
            "offset_mode": "dense",
            "created_ms": 0,
        },
        SegmentHeader,
    )
    return b"".join(writer.finish(header, []))


class OneRow:
    """A manifest with one segment."""

    def __init__(self, data: bytes) -> None:
        header = read_segment(data)[0].header
        footer = len(data) - header.bytes
        self.row = f"0:{header.last}:0:{header.records}:0:{len(data)}:{footer}:5:ab".encode()

    async def command(self, *command: object) -> list[bytes]:
        return [self.row]

    async def run(self, call: object) -> None:
        """Run no script: this reader finds nothing by time."""


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_fetches_of_every_size_return_each_batch_once(kind: str, tmp_path: Path) -> None:
    data = written()
    topic: Any = SimpleNamespace(
        id=TOPIC_ID, name="t", partition=lambda number: Keys().partition("t", number)
    )
    store = SegmentStore("memory:///" if kind == "memory" else f"file://{tmp_path}")
    await store.put(f"c/{TOPIC_ID}/0/{0:020d}-ab.segment", data)
    _, batches = read_segment(data)
    for most in (1, 100_000, 999_999, 1 << 20, 1_500_000, 10 << 20):
        source = chunk_source(store, 2 << 20)
        reader = RemoteLogReader(OneRow(data), store, source, Metrics(), lambda: "c", lambda: 5)
        found: list[bytes] = []
        offset = fetches = 0
        while offset <= (BATCHES - 1) * 100:
            request = ReadRequest(topic, 0, offset, most, batches=True)
            result = ReadResult(ErrorCode.NONE, start=0)
            assert await reader.read(request, result)
            sizes = [size for part in result.batches for _, size, _ in headers_in(part)]
            assert sum(sizes) <= most or len(sizes) == 1
            found += [bytes(part) for part in result.batches]
            offset, fetches = result.next_offset, fetches + 1
        assert b"".join(found) == batches, most
        assert fetches <= 2 * len(batches) // max(most, 140_000) + BATCHES * (most == 1) + 1, most
