"""Check that records with korvet-deliver-at or korvet-delay-ms wait until they are due."""

from collections.abc import AsyncIterator
from time import time
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.broker.background.scheduled_delivery import ScheduledDelivery
from korvet.broker.background.tasks import BackgroundTasks
from korvet.log.append_parts import PART_RECORDS, parts_of
from korvet.log.cleaner import LogCleaner
from korvet.log.scheduled import ROW_RECORDS
from korvet.log.validator import prepare_append
from korvet.wire import compression
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from korvet.wire.records import BadBatch, Headers, Record
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch, packed, produce, rows, rows_in, stamp_with

shapes = pytest.mark.parametrize("form", ["record", "batch"])

LATER: Headers = [("korvet-delay-ms", b"60000")]
PAST: Headers = [("korvet-deliver-at", b"1000")]


def record(value: bytes | None, *headers: tuple[str, bytes], key: bytes | None = b"k") -> Record:
    return (0, 1000, key, value, list(headers))


def numbered(*made: Record) -> list[Record]:
    return [(n, *each[1:]) for n, each in enumerate(made)]


async def send(broker: Broker, *made: Record, codec: int = compression.NONE, **how: Any) -> Any:
    return await produce(broker, packed(numbered(*made), 13, codec, **how))


async def create(broker: Broker, form: str = "record", **configs: str) -> None:
    await broker.create(storage_format=form, delivery_schedule_enable="true", **configs)


async def waiting(broker: Broker) -> Any:
    topic = await broker.services.topics.get("t")
    assert topic is not None
    call = broker.services.keys.partition("t", 0, topic.id).schedule_list(most=100)
    return await broker.services.store.run(call)


@pytest.fixture
async def delivery(broker: Broker) -> AsyncIterator[ScheduledDelivery]:
    """The background task of the broker; a test runs its rounds."""
    yield BackgroundTasks(broker.services).scheduled


async def log_of(broker: Broker, delivery: ScheduledDelivery) -> list[Record]:
    """Move due records, and return the records of the log."""
    await delivery.run_once()
    start = await fetch(broker, 0)
    if start.error_code == E.OFFSET_OUT_OF_RANGE:
        return []
    return rows_in(start.records)


@shapes
@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
async def test_scheduled_records_come_after_ordinary_ones_with_all_they_have(
    broker: Broker, delivery: ScheduledDelivery, form: str, codec: int
) -> None:
    await create(broker, form, offset_mode="dense")
    answer = await send(
        broker,
        record(b"a"),
        record(b"due", *PAST, ("h", b"x")),
        record(b"b"),
        record(b"later", *LATER),
        codec=codec,
    )
    assert (answer.error_code, answer.base_offset) == (E.NONE, -1)
    assert [row[3] for row in rows_in((await fetch(broker, 0)).records)] == [b"a", b"b"]
    found = await log_of(broker, delivery)
    assert found == [
        (0, 1000, b"k", b"a", []),
        (1, 1000, b"k", b"b", []),
        (2, 1000, b"k", b"due", [*PAST, ("h", b"x")]),
    ]
    assert (await waiting(broker)).records == 1


async def test_values_compressed_at_rest_come_back_whole(
    broker: Broker, delivery: ScheduledDelivery
) -> None:
    await create(broker, storage_compression="zstd")
    values = [b"x" * 9000, b"", b"y" * 9000]
    await send(broker, *(record(value, *PAST, key=None) for value in values))
    assert [row[2:4] for row in await log_of(broker, delivery)] == [(None, v) for v in values]


@shapes
async def test_a_topic_without_the_config_appends_at_once(broker: Broker, form: str) -> None:
    await broker.create(storage_format=form, offset_mode="dense")
    answer = await send(broker, record(b"a", *LATER))
    assert (answer.error_code, answer.base_offset) == (E.NONE, 0)


@shapes
async def test_words_in_a_value_are_no_headers(broker: Broker, form: str) -> None:
    await create(broker, form, offset_mode="dense")
    answer = await send(broker, record(b"korvet-delay-ms", ("other", b"korvet-deliver-at")))
    assert (answer.error_code, answer.base_offset) == (E.NONE, 0)


@shapes
async def test_a_retried_batch_is_stored_once(
    broker: Broker, delivery: ScheduledDelivery, form: str
) -> None:
    await create(broker, form, offset_mode="dense")
    for sequence, made in ((0, [record(b"a", *PAST), record(b"b")]), (2, [record(b"c", *PAST)])):
        for _ in range(2):
            answer = await send(broker, *made, producer=(9, 0, sequence))
            assert (answer.error_code, answer.base_offset) == (E.NONE, -1)
    answer = await produce(broker, packed(rows(b"d"), 13, producer=(9, 0, 3)))
    assert answer.error_code == E.NONE
    values = [row[3] for row in await log_of(broker, delivery)]
    assert values == [b"b", b"d", b"a", b"c"]


@shapes
async def test_records_with_one_time_wait_together(
    broker: Broker, delivery: ScheduledDelivery, form: str
) -> None:
    await create(broker, form, offset_mode="dense")
    made = [record(b"%d" % n, *(PAST if n % 2 else LATER)) for n in range(10)]
    await send(broker, *made, codec=compression.LZ4)
    found = await waiting(broker)
    assert [found.rows[3], found.rows[8]] == [5, 5]
    log = await log_of(broker, delivery)
    assert [(row[0], row[3]) for row in log] == [(n, b"%d" % (2 * n + 1)) for n in range(5)]


@shapes
async def test_a_tombstone_with_the_id_cancels(
    broker: Broker, delivery: ScheduledDelivery, form: str
) -> None:
    await create(broker, form)
    name = ("korvet-schedule-id", b"reminder 7")
    await send(broker, record(b"a", *LATER, name), record(b"b", *PAST))
    answer = await send(broker, record(None, name), record(None, ("korvet-schedule-id", b"no")))
    assert (answer.error_code, answer.base_offset) == (E.NONE, -1)
    found = await waiting(broker)
    assert (found.records, found.rows[2]) == (1, b"")
    assert [row[3] for row in await log_of(broker, delivery)] == [b"b"]


@shapes
async def test_a_tombstone_can_wait_too(
    broker: Broker, delivery: ScheduledDelivery, form: str
) -> None:
    await create(broker, form, cleanup_policy="compact")
    await send(broker, record(None, *PAST))
    assert [row[2:4] for row in await log_of(broker, delivery)] == [(b"k", None)]


async def compact(broker: Broker) -> list[tuple[bytes | None, bytes | None]]:
    """Return key and value of the records that the cleaner keeps."""
    topic = await broker.services.topics.get("t")
    assert topic is not None
    services = broker.services
    assert await LogCleaner(services.store, topic, 0).run() is not None
    return [(row[2], row[3]) for row in rows_in((await fetch(broker, 0)).records)]


@shapes
async def test_the_cleaner_sees_a_record_when_it_is_appended(
    broker: Broker, delivery: ScheduledDelivery, form: str
) -> None:
    await create(broker, form, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    await send(broker, record(b"due a", *PAST, key=b"a"), record(None, *PAST, key=b"b"))
    await send(broker, record(b"due c", *LATER, key=b"c"))
    for key in (b"a", b"b", b"c"):
        await send(broker, record(b"now", key=key))
    assert await compact(broker) == [(b"a", b"now"), (b"b", b"now"), (b"c", b"now")]
    await delivery.run_once()
    # The scheduled record is the newest of its key, also if it is a tombstone.
    found = await compact(broker)
    assert [row for row in found if row != (b"b", None)] == [(b"c", b"now"), (b"a", b"due a")]


@shapes
async def test_a_compacted_topic_takes_no_scheduled_record_without_a_key(
    broker: Broker, form: str
) -> None:
    await create(broker, form, cleanup_policy="compact")
    answer = await send(broker, record(b"a", *LATER), record(b"b", *LATER, key=None))
    assert answer.error_code == E.INVALID_RECORD
    assert [row.batch_index for row in answer.record_errors] == [1]
    assert "without a key" in answer.record_errors[0].batch_index_error_message
    assert (await waiting(broker)).records == 0


INVALID = [
    ([("korvet-delay-ms", b"soon")], "korvet-delay-ms is 'soon'"),
    ([("korvet-delay-ms", b"-5")], "at most 15 decimal digits"),
    ([("korvet-delay-ms", b"\x00\x03\xe8")], r"'\x00\x03\xe8'"),
    ([("korvet-deliver-at", b"1750000000000000000")], "decimal digits"),
    ([("korvet-deliver-at", b"99999999999999")], "delivery.schedule.max.delay.ms is 31536000000"),
    ([("korvet-delay-ms", b"31536000001")], "31536000001 ms"),
    ([("korvet-delay-ms", b"1"), ("korvet-deliver-at", b"1")], "not both"),
    ([("korvet-schedule-id", b"x")], "null value"),
    ([*LATER, ("korvet-schedule-id", b"")], "from 1 to 1024"),
    ([*LATER, ("korvet-schedule-id", b"x" * 1025)], "from 1 to 1024"),
]


@pytest.mark.parametrize(("headers", "reason"), INVALID)
@shapes
async def test_invalid_headers_reject_the_batch_and_name_the_record(
    broker: Broker, form: str, headers: Headers, reason: str
) -> None:
    await create(broker, form)
    answer = await send(broker, record(b"a"), record(b"b", *headers))
    assert answer.error_code == E.INVALID_RECORD
    assert reason in answer.error_message
    assert [row.batch_index for row in answer.record_errors] == [1]
    assert (await waiting(broker)).records == 0
    assert (await fetch(broker, 0)).high_watermark == 0


@pytest.mark.parametrize("limit", ["records", "bytes"])
async def test_a_full_schedule_rejects_the_batch_with_a_reason(broker: Broker, limit: str) -> None:
    most = {f"delivery_schedule_max_{limit}": {"records": "2", "bytes": "200"}[limit]}
    await create(broker, **most)
    full = [record(b"x" * 60, *LATER), record(b"x" * 60, *LATER)]
    assert (await send(broker, *full[: 1 + (limit == "records")])).error_code == E.NONE
    answer = await send(broker, record(b"a"), *full)
    assert answer.error_code == E.POLICY_VIOLATION
    assert f"delivery.schedule.max.{limit}" in answer.error_message
    assert (await send(broker, record(b"a"))).error_code == E.NONE


async def test_a_record_replaces_one_of_its_id_in_a_full_schedule(broker: Broker) -> None:
    await create(broker, delivery_schedule_max_records="2")
    named = [[*LATER, ("korvet-schedule-id", name)] for name in (b"1", b"2", b"3")]
    first, second, third = (record(b"a", *headers) for headers in named)
    assert (await send(broker, first, second)).error_code == E.NONE
    assert (await send(broker, third)).error_code == E.POLICY_VIOLATION
    assert (await send(broker, record(b"b", *named[1]))).error_code == E.NONE
    assert (await send(broker, record(None, named[0][1]), third)).error_code == E.NONE
    assert (await send(broker, third, second, third, second)).error_code == E.NONE
    assert (await send(broker, third, second, first)).error_code == E.POLICY_VIOLATION
    assert (await waiting(broker)).records == 2


def many(count: int, *headers: tuple[str, bytes]) -> list[Record]:
    """Return records with a time each, so that each is a row."""
    return [record(b"%d" % n, ("korvet-deliver-at", b"%d" % n), *headers) for n in range(count)]


@shapes
async def test_the_retry_of_a_batch_stored_in_part_stores_what_is_missing(
    broker: Broker, delivery: ScheduledDelivery, form: str
) -> None:
    await create(broker, form, offset_mode="dense")
    made = [record(b"ordinary"), *many(2 * PART_RECORDS + 10)]
    topic = await broker.services.topics.get("t")
    assert topic is not None
    data = packed(numbered(*made), 13, producer=(9, 0, 0))
    call = prepare_append(
        topic,
        0,
        data,
        version=13,
        now_ms=0,
        settings=broker.services.settings,
    )
    for part in list(parts_of(call))[:2]:
        assert not (await broker.services.store.run(part)).error
    assert (await waiting(broker)).records == PART_RECORDS
    for _ in range(2):
        answer = await produce(broker, data)
        assert (answer.error_code, answer.base_offset) == (E.NONE, -1)
        assert (await waiting(broker)).records == 2 * PART_RECORDS + 10
    answer = await send(broker, record(b"next"), producer=(9, 0, len(made)))
    assert answer.error_code == E.NONE
    while (await waiting(broker)).records:
        await delivery.run_once()
    found: list[Record] = []
    while page := rows_in((await fetch(broker, len(found))).records):
        found += page
    values = [row[3] for row in found]
    assert values == [b"ordinary", b"next", *(row[3] for row in made[1:])]


@shapes
async def test_nothing_is_stored_of_a_large_batch_without_room(broker: Broker, form: str) -> None:
    most = 2 * PART_RECORDS
    await create(broker, form, delivery_schedule_max_records=str(most))
    await send(broker, *many(2))
    answer = await send(broker, record(b"a"), *many(most - 1), producer=(9, 0, 0))
    assert answer.error_code == E.POLICY_VIOLATION
    assert (await waiting(broker)).records == 2
    assert (await fetch(broker, 0)).high_watermark == 0
    answer = await send(broker, record(b"a"), *many(most - 2), producer=(9, 0, 0))
    assert answer.error_code == E.NONE
    assert (await waiting(broker)).records == most


async def test_later_parts_may_be_stored_of_a_rejected_batch_without_idempotence(
    broker: Broker,
) -> None:
    most = 2 * PART_RECORDS
    await create(broker, delivery_schedule_max_records=str(most))
    await send(broker, *many(2))
    answer = await send(broker, *many(most - 1))
    assert answer.error_code == E.POLICY_VIOLATION
    assert (await waiting(broker)).records == 2 + most - 1 - PART_RECORDS


async def test_a_row_of_layout_record_has_few_records_and_moves_at_once(
    broker: Broker, delivery: ScheduledDelivery
) -> None:
    await create(broker, offset_mode="dense")
    await send(broker, *(record(b"%d" % n, *PAST) for n in range(2 * ROW_RECORDS + 1)))
    found = await waiting(broker)
    assert found.rows[3::5] == [ROW_RECORDS, ROW_RECORDS, 1]
    log = await log_of(broker, delivery)
    assert [row[3] for row in log] == [b"%d" % n for n in range(len(log))]
    assert 0 < len(log) <= ROW_RECORDS


async def test_log_append_time_is_the_time_of_the_move(
    broker: Broker, delivery: ScheduledDelivery
) -> None:
    await create(broker)
    await stamp_with(broker, "LogAppendTime")
    began = int(time() * 1000)
    answer = await send(broker, record(b"a", *PAST))
    assert answer.log_append_time_ms >= began - 1
    ((_, timestamp, *_),) = await log_of(broker, delivery)
    assert timestamp >= began - 1


async def test_offset_mode_bytes_takes_no_scheduled_records(broker: Broker) -> None:
    with pytest.raises(AssertionError, match=r"offset\.mode=bytes"):
        await create(broker, offset_mode="bytes")


async def test_records_that_wait_are_delivered_after_the_config_is_removed(
    broker: Broker, delivery: ScheduledDelivery
) -> None:
    await create(broker)
    await send(broker, record(b"a", *PAST))
    topic = await broker.services.topics.get("t")
    assert topic is not None
    await alter(broker, "false")
    assert [row[3] for row in await log_of(broker, delivery)] == [b"a"]


async def alter(broker: Broker, value: str) -> None:
    change = AlterableConfig(name="delivery.schedule.enable", config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await broker.ask(request)
    assert answer.responses[0].error_code == E.NONE


async def test_transactions_take_no_scheduled_records(broker: Broker) -> None:
    await create(broker)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    data = packed(numbered(record(b"a", *LATER)), 13, transactional=True, producer=(9, 0, 0))
    with pytest.raises(BadBatch, match="send it with a producer without") as caught:
        prepare_append(
            topic,
            0,
            data,
            version=13,
            now_ms=0,
            settings=broker.services.settings,
            transaction=1,
        )
    assert caught.value.error == E.INVALID_RECORD
