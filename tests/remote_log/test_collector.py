"""Check that a segment has every committed batch, whether batches are large or small."""

from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.remote_log.copier import Collector
from korvet.wire.segments import SegmentHeader, headers_in, read_segment
from tests.support.connected_broker import Broker
from tests.support.exchanges import packed, produce, rows


@pytest.mark.parametrize("mode", ["dense", "time"])
@pytest.mark.parametrize(("size", "is_large"), [(200, False), (60_000, True)])
@pytest.mark.parametrize("with_end", [False, True])
async def test_a_segment_has_all_batches_at_their_offsets(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    size: int,
    is_large: bool,
    with_end: bool,
) -> None:
    await broker.create("t", storage_format="batch", offset_mode=mode)
    random, bases, values = Random(29), list[int](), list[bytes]()
    for _ in range(80):
        values.append(random.randbytes(size))
        answer = await produce(broker, packed(rows(values[-1], b"second"), 13))
        assert answer.error_code == E.NONE
        bases.append(answer.base_offset)
    store, sent = broker.services.store, list[Any]()
    submit = store.submit_range

    def noted(key: str, commands: Any, reply: Any) -> Any:
        sent.append(reply)
        return submit(key, commands, reply)

    monkeypatch.setattr(store, "submit_range", noted)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    collector = Collector(store, topic, 0)
    buffer = bytearray(b"the rest of an earlier segment" * 1000)
    end = bases[-1] + 2 if with_end else None
    writer = await collector.collect(0, 32 << 20, end, buffer)
    assert (writer.records, writer.last) == (160, bases[-1] + 1)
    header = SegmentHeader("id", "c", "t", "0" * 32, 0, 0, 0, 0, 0, -1, "batch", mode, 0)
    whole = b"".join(writer.finish(header, []))
    read_segment(whole)
    batches = memoryview(whole)[: writer.size]
    found = list(headers_in(batches))
    assert [header.base_offset for _, _, header in found] == bases
    for (at, length, _), value in zip(found, values, strict=True):
        assert value in bytes(batches[at : at + length])
    assert bool(sent) == (is_large and not with_end)
