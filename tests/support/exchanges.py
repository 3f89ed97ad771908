"""Requests to produce to and to fetch from one partition, and the records in them."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from korvet.wire import batch_builder, compression, message_sets, records
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from korvet.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from korvet.wire.records import Record
from tests.support.connected_broker import Broker
from tests.support.wire_client import batches_in

SHAPES = [("record", "time"), ("record", "dense"), ("batch", "time"), ("batch", "dense")]


shapes = pytest.mark.parametrize(("form", "mode"), SHAPES, ids=lambda word: word)


def rows(*values: bytes, time: int = 0) -> list[Record]:
    return [(n, time, b"k", value, []) for n, value in enumerate(values)]


def packed(made: list[Record], version: int, codec: int = compression.NONE, **how: Any) -> bytes:
    """Return the records in the format of that Produce version."""
    if version >= 3:
        return bytes(batch_builder.build(made, codec=codec, **how))
    return bytes(message_sets.build(made, magic=0 if version < 2 else 1, codec=codec))


async def produce(
    broker: Broker,
    data: bytes | None,
    *,
    name: str = "t",
    number: int = 0,
    acks: int = -1,
    version: int = 13,
) -> Any:
    """Produce to one partition; return its row of the response, or None with acks=0."""
    topic = await broker.services.topics.get(name)
    known = topic.uuid if topic else uuid4()
    row = TopicProduceData(
        name=name, topic_id=known, partition_data=[PartitionProduceData(index=number, records=data)]
    )
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[row])
    answer = await broker.ask(request, version)
    return answer and answer.responses[0].partition_responses[0]


async def fetch(
    broker: Broker,
    offset: int,
    *,
    name: str = "t",
    number: int = 0,
    version: int = 18,
    wait: int = 0,
    size: int = 1 << 20,
    least: int = 0,
    epoch: int = -1,
    last: int = -1,
    committed: bool = False,
) -> Any:
    """Fetch from one partition; return its row of the response."""
    topic = await broker.services.topics.get(name)
    place = FetchPartition(
        partition=number,
        fetch_offset=offset,
        partition_max_bytes=size,
        current_leader_epoch=epoch,
        last_fetched_epoch=last,
    )
    row = FetchTopic(topic=name, topic_id=topic.uuid if topic else uuid4(), partitions=[place])
    request = FetchRequest(
        max_wait_ms=wait,
        min_bytes=least,
        max_bytes=size,
        isolation_level=int(committed),
        topics=[row],
    )
    answer = await broker.ask(request, version)
    assert answer.error_code == 0 and answer.session_id == 0
    return answer.responses[0].partitions[0]


def rows_in(data: Any, version: int = 18) -> list[Record]:
    """Return the records of a Fetch response in the format of its version, at their offsets."""
    blob = b"".join(bytes(part) for part in data) if isinstance(data, list) else bytes(data or b"")
    if version >= 4:
        found = [row for batch in batches_in(blob) for row in records.records_of(batch)]
        return found
    found = message_sets.parse(blob, limit=1 << 20) if blob else []
    at, offsets = 0, []
    while at < len(blob):
        offset, size = struct.unpack_from(">qi", blob, at)
        offsets.append(offset)
        at += 12 + size
    return [(offset, *row[1:]) for offset, row in zip(offsets, found, strict=True)]


def markers_in(data: Any) -> set[int]:
    """Return the offsets of the control records in a Fetch response; clients skip them."""
    blob = b"".join(bytes(part) for part in data) if isinstance(data, list) else bytes(data or b"")
    return {
        row[0]
        for batch in batches_in(blob)
        if records.read_header(batch).attributes & records.CONTROL
        for row in records.records_of(batch)
    }


async def stamp_with(broker: Broker, kind: str) -> None:
    """Set the topic's message.timestamp.type."""
    change = AlterableConfig(name="message.timestamp.type", config_operation=0, value=kind)
    row = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    answer = await broker.ask(IncrementalAlterConfigsRequest(resources=[row], validate_only=False))
    assert answer.responses[0].error_code == 0


GOOD = packed(rows(b"a", b"b"), 13)


def note_sent(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return a list to which each command is added that the broker sends to Redis."""
    sent, submit = list[tuple[Any, ...]](), broker.services.store.submit_command

    def noted(*command: Any) -> Any:
        sent.append(command)
        return submit(*command)

    monkeypatch.setattr(broker.services.store, "submit_command", noted)
    return sent


def size_of(entries: list[Any]) -> int:
    """Return the number of bytes in the fields and values of the entries."""
    return sum(len(word) for _, fields in entries for word in fields)


def note_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, measure: Callable[[list[Any]], int] = size_of
) -> list[int]:
    """Return a list to which the size of each XRANGE reply to the broker is added."""
    store = broker.services.store
    read, submit, submit_range = list[int](), store.submit_command, store.submit_range

    async def noted(*command: Any) -> Any:
        reply = await submit(*command)
        if command[0] == "XRANGE":
            read.append(measure(reply))
        return reply

    async def noted_range(sent: Any, reply: Any) -> None:
        await sent
        read.append(measure(reply.rows))

    def ranged(key: str, commands: Any, reply: Any) -> Any:
        sent = submit_range(key, commands, reply)
        return sent and asyncio.ensure_future(noted_range(sent, reply))

    monkeypatch.setattr(
        store, "submit_command", lambda *command: asyncio.ensure_future(noted(*command))
    )
    monkeypatch.setattr(store, "submit_range", ranged)
    return read
