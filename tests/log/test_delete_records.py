"""Check DeleteRecords, with the codes of Apache Kafka 4.3.0."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.support.connected_broker import Broker


async def truncate(
    broker: Broker, offset: int, name: str = "t", number: int = 0, version: int = 2
) -> Any:
    place = DeleteRecordsPartition(partition_index=number, offset=offset)
    topic = DeleteRecordsTopic(name=name, partitions=[place])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=1)
    return (await broker.ask(request, version)).topics[0].partitions[0]


async def fill(broker: Broker, count: int, name: str = "t", size: int = 1) -> None:
    topic = await broker.services.topics.get(name)
    assert topic is not None
    for _ in range(count):
        call = broker.services.keys.partition(name, 0, topic.id).append(
            count=1, size=size, max_timestamp=1, fields=[2, b"value", b"v"]
        )
        assert (await broker.services.store.run(call)).error == 0


@pytest.mark.parametrize(
    ("offset", "name", "number", "error"),
    [
        (6, "t", 0, E.OFFSET_OUT_OF_RANGE),
        (-2, "t", 0, E.OFFSET_OUT_OF_RANGE),
        (0, "t", 99, E.UNKNOWN_TOPIC_OR_PARTITION),
        (0, "t", -1, E.UNKNOWN_TOPIC_OR_PARTITION),
        (0, "absent", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        (0, "compacted", 0, E.POLICY_VIOLATION),
    ],
)
async def test_what_cannot_be_is_refused(
    broker: Broker, offset: int, name: str, number: int, error: E
) -> None:
    await broker.create("t", offset_mode="dense")
    await broker.create("compacted", cleanup_policy="compact")
    await fill(broker, 5)
    answer = await truncate(broker, offset, name, number)
    assert (E(answer.error_code), answer.low_watermark) == (error, -1)


@pytest.mark.parametrize("version", range(3))
async def test_records_below_the_offset_are_gone(broker: Broker, version: int) -> None:
    await broker.create("t", offset_mode="dense")
    await fill(broker, 5)
    for offset, start in ((0, 0), (3, 3), (1, 3), (-1, 5), (-1, 5)):
        answer = await truncate(broker, offset, version=version)
        assert (answer.error_code, answer.low_watermark) == (E.NONE, start)
    stream = broker.services.keys.partition("t", 0).stream
    assert await broker.services.store.command("XLEN", stream) == 0


@pytest.mark.parametrize(("offset", "start"), [(-1, 600), (555, 555)])
async def test_much_goes_a_part_at_a_time(broker: Broker, offset: int, start: int) -> None:
    await broker.create("t", offset_mode="dense")
    await fill(broker, 600, size=70_000)
    answer = await truncate(broker, offset)
    assert (answer.error_code, answer.low_watermark) == (E.NONE, start)
    stream = broker.services.keys.partition("t", 0).stream
    assert await broker.services.store.command("XLEN", stream) == 600 - start


async def test_records_appended_after_the_request_stay(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", offset_mode="dense")
    await fill(broker, 5)
    run = broker.services.store.run

    async def run_late(call: Any) -> Any:
        if call.script.name == "log.delete_records":
            await fill(broker, 1)
        return await run(call)

    monkeypatch.setattr(broker.services.store, "run", run_late)
    answer = await truncate(broker, -1)
    assert (answer.error_code, answer.low_watermark) == (E.NONE, 5)
    stream = broker.services.keys.partition("t", 0).stream
    assert await broker.services.store.command("XLEN", stream) == 1
