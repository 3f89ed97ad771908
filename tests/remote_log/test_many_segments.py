"""Check that the cost of a read and of a start does not depend on the number of segments."""

from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.log.read_result import ReadRequest, ReadResult
from korvet.remote_log.chunk_cache import chunk_source
from korvet.remote_log.manifest import object_name
from korvet.remote_log.reader import RemoteLogReader
from korvet.remote_log.store import SegmentStore
from korvet.testing import LuaRunner
from korvet.wire import batch_builder
from korvet.wire.records import Record
from korvet.wire.segment_writer import SegmentWriter
from korvet.wire.segments import SegmentHeader, read_segment
from tests.lua.partition import ID, KEYS, Part
from tests.support.connected_broker import Broker
from tests.support.redis_servers import TestServer

SPAN = 100
"""Offsets of a segment."""
TOPIC: Any = SimpleNamespace(
    id=ID, name="t", partition=lambda number: KEYS.partition("t", number, ID)
)


class Counted:
    """A manifest that counts its calls."""

    def __init__(self, runner: LuaRunner) -> None:
        self.calls = 0
        self._runner = runner

    async def command(self, *command: Any) -> Any:
        self.calls += 1
        return self._runner.command(*command)

    async def run(self, call: Any) -> Any:
        self.calls += 1
        return self._runner.run(call)


class CountedStore(SegmentStore):
    """A directory that counts its requests."""

    requests = 0

    async def get(self, name: str, start: int, end: int) -> memoryview:
        self.requests += 1
        return await super().get(name, start, end)

    def get_now(self, name: str, start: int, end: int) -> memoryview | None:
        found = super().get_now(name, start, end)
        self.requests += found is not None
        return found


def segment(first: int, name: str) -> bytes:
    """Return a segment of ten batches of 10 KB, the first one at the offset."""
    writer = SegmentWriter(first)
    for base in range(first, first + SPAN, SPAN // 10):
        rows: list[Record] = [
            (at, base, None, b"v" * 1000, []) for at in range(base, base + SPAN // 10)
        ]
        writer.add(batch_builder.build(rows, base=base))
    values = {"id": name, "cluster_id": "c", "topic": "t", "topic_id": ID, "created_ms": 0}
    numbers = dict.fromkeys(("partition", "first", "last", "records", "bytes", "max_timestamp"), 0)
    shape = {"storage_format": "batch", "offset_mode": "dense"}
    header = msgspec.convert({**values, **numbers, **shape}, SegmentHeader)
    return b"".join(writer.finish(header, []))


async def costs(lua: LuaRunner, folder: Path, count: int) -> list[list[tuple[int, int]]]:
    """Return calls and requests of each read, of segments at three depths of so many."""
    store = CountedStore(f"file://{folder}/{count}")
    numbers = [int(count * share) for share in (0.1, 0.5, 0.9)]
    sizes = dict.fromkeys(range(count), (100_000, 500))
    for number in numbers:
        data = segment(number * SPAN, "ab")
        await store.put(object_name("c", ID, 0, number * SPAN, "ab"), data)
        sizes[number] = (len(data), len(data) - read_segment(data)[0].header.bytes)
    part = Part(lua, mode="dense")
    rows = [
        (at * SPAN, at * SPAN + SPAN - 1, SPAN, size, f"{footer}:{at * SPAN}:ab")
        for at, (size, footer) in sizes.items()
    ]
    shape: Any = {"format": part.form, "mode": part.mode, "bits": part.bits}
    end = count * SPAN
    lua.run(KEYS.partition("t", 0, ID).restore(rows, **shape, epoch=0, start=0, next=end))
    found = [await paid(Counted(lua), store, number * SPAN) for number in numbers]
    lua.command("DEL", part.keys.log, part.keys.segments, part.keys.stream)
    return found


async def paid(manifest: Counted, store: CountedStore, first: int) -> list[tuple[int, int]]:
    """Return calls and requests of each read of a segment, by a new reader."""
    reader = RemoteLogReader(
        manifest, store, chunk_source(store, 0), Metrics(), lambda: "c", lambda: 5
    )
    found = []
    for offset in (first + SPAN // 2 + 3, first, first + SPAN - 1, None):
        manifest.calls = store.requests = 0
        if offset is None:
            time = first - SPAN + 1
            assert await reader.find_timestamp(TOPIC, 0, time) == (time, first)
        else:
            result = ReadResult(ErrorCode.NONE, start=0)
            request = ReadRequest(TOPIC, 0, offset, 1_000_000, batches=True)
            assert await reader.read(request, result) and result.batches
        found.append((manifest.calls, store.requests))
    return found


async def test_a_read_costs_the_same_with_ten_and_ten_thousand_segments(
    lua: LuaRunner, tmp_path: Path
) -> None:
    few = await costs(lua, tmp_path, 10)
    assert few == await costs(lua, tmp_path, 10_000)
    # Row, footer, batches; then batches; by time one call, as the footer is known.
    assert few == [[(1, 2), (0, 1), (0, 1), (1, 0)]] * 3


async def test_consumers_at_several_depths_ask_the_manifest_once_each(
    lua: LuaRunner, tmp_path: Path
) -> None:
    store = CountedStore(f"file://{tmp_path}")
    rows = []
    for number in range(5):
        data = segment(number * SPAN, "ab")
        await store.put(object_name("c", ID, 0, number * SPAN, "ab"), data)
        footer = len(data) - read_segment(data)[0].header.bytes
        first = number * SPAN
        rows.append((first, first + SPAN - 1, SPAN, len(data), f"{footer}:{first}:ab"))
    shape: Any = {"format": "batch", "mode": "dense", "bits": 0}
    lua.run(KEYS.partition("t", 0, ID).restore(rows, **shape, epoch=0, start=0, next=5 * SPAN))
    manifest = Counted(lua)
    reader = RemoteLogReader(
        manifest, store, chunk_source(store, 0), Metrics(), lambda: "c", lambda: 5
    )
    for step in range(0, SPAN, 10):
        for number in range(5):
            result = ReadResult(ErrorCode.NONE, start=0)
            request = ReadRequest(TOPIC, 0, number * SPAN + step, 20_000, batches=True)
            assert await reader.read(request, result) and result.batches
    assert manifest.calls == 5


async def started(config: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Return the writes to Redis, and the requests to the remote store, until the first pass."""
    requests = 0
    request = SegmentStore._request

    def noted(self: SegmentStore, operation: str, name: str) -> Any:
        nonlocal requests
        requests += 1
        return request(self, operation, name)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentStore, "_request", noted)
        async with connected(config) as services:
            await services.registration.heartbeat()
            await services.topics.refresh()
            manager = services.tiered.manager("one")
            assert manager is not None
            manager._collects_at = inf
            await manager.run_once()
            return services.store.round_trips, requests


async def test_a_broker_with_three_thousand_segments_starts_like_an_empty_one(
    valkey_server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"redis": valkey_server.url, "namespace": "many", "node-id": "7"}
    sets = ["remote.log.storage.system.enable=true", f"remote.storage.url=file://{tmp_path}"]
    config = load({**options, "advertise": "me:9092"}, sets=sets, environ={})
    async with connected(config) as services:
        await services.registration.heartbeat()
        await services.topics.refresh()
        broker = Broker(services)
        await broker.create("t", partitions=1, remote_storage_enable="true", retention_ms="-1")
        topic = await services.topics.get("t")
        assert topic is not None
    empty = await started(config, monkeypatch)
    async with connected(config) as services:
        store, keys = services.store, services.keys
        names = keys.partition("t", 0)
        await store.command("DEL", names.log, names.stream, names.segments)
        rows = [
            (at * SPAN, at * SPAN + SPAN - 1, SPAN, 33_000_000, f"16000:{at}:ab")
            for at in range(3000)
        ]
        policy = topic.policy
        reply = await store.run(
            keys.partition("t", 0, topic.id).restore(
                rows,
                format=policy.storage_format,
                mode=policy.offset_mode,
                bits=policy.offset_bits,
                epoch=0,
                start=0,
                next=3000 * SPAN,
            )
        )
        assert (reply.error, reply.restored) == (0, 3000)
    full = await started(config, monkeypatch)
    assert full[1] == empty[1] == 0
    # A pass has no work in a partition without records; timers of the event loop may share a write.
    assert abs(full[0] - empty[0]) <= 8
