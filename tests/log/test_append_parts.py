"""Check large appends of layout `record`: parts within their limits, one reply, safe retries."""

import random
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.log.append_parts import (
    PART_ARGUMENTS,
    PART_BYTES,
    PART_RECORDS,
    is_packed,
    packed,
    parts_of,
    send_append,
    whole_reply,
)
from korvet.scripts.append_call import (
    EXPIRED,
    FIELDS_AT,
    ORDINARY_AT,
    TRANSACTION_AT,
    Row,
    allow_expired_producer,
    count_of,
    rows_of,
    sequence_of,
    size_of,
)
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import AppendReply
from korvet.scripts.keys import Keys
from korvet.store.resp import Packer
from korvet.wire import batch_builder, record_entries
from korvet.wire.records import Record
from tests.lua.partition import ID
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch, produce, rows_in

MANY = 5 * PART_RECORDS
"""The records of a full batch of librdkafka."""


def rows(count: int, size: int = 10, headers: int = 0) -> list[Record]:
    named = [(f"h{n}", b"x") for n in range(headers)]
    return [(n, 1000 + n, b"k", b"%d" % n * size, named) for n in range(count)]


def call_of(found: Sequence[Record], keys: Keys | None = None, **words: Any) -> Call[AppendReply]:
    fields = record_entries.fields_of(found)
    each = {"count": len(found), "size": 7 * len(found) + 3, "max_timestamp": 1}
    topic_id = words.pop("topic_id", ID)
    return (keys or Keys()).partition("t", 0, topic_id).append(fields, **(each | words))


def records_in(call: Call[AppendReply]) -> list[list[Any]]:
    """Return the values of each record."""
    fields, found, at = list(call.args[FIELDS_AT:]), [], 0
    if isinstance(fields[0], int) and fields[0] < 0:
        width = -fields[0]
        at = 1 + width
        return [fields[n : n + width] for n in range(at, len(fields), width)]
    while at < len(fields):
        long = fields[at]
        assert isinstance(long, int)
        found.append(fields[at + 1 : at + 1 + long])
        at += 1 + long
    return found


@pytest.mark.parametrize(
    ("found", "parts"),
    [
        (rows(PART_RECORDS), 1),
        (rows(MANY), 5),
        (rows(MANY, headers=3), 7),
        (rows(3, size=PART_BYTES), 3),
        (rows(2, headers=1000) + rows(5), 1),
        ([*rows(3), (3, 4, None, None, []), *rows(PART_RECORDS)], 2),
    ],
    ids=["a part", "equal fields", "headers", "large values", "many headers", "other fields"],
)
def test_parts_have_all_records_in_order_within_the_limits(found: list[Record], parts: int) -> None:
    whole = call_of(found, producer_id=9, producer_epoch=1, base_sequence=2**31 - 5)
    made = list(parts_of(whole))
    assert len(made) == parts
    assert [row for part in made for row in records_in(part)] == records_in(whole)
    assert [count_of(part) for part in made] == [len(records_in(part)) for part in made]
    assert sum(map(size_of, made)) == size_of(whole)
    expected = 2**31 - 5
    for part in made:
        assert sequence_of(part) == (9, 1, expected)
        expected = (expected + count_of(part)) % 2**31
        assert count_of(part) == 1 or (
            count_of(part) <= PART_RECORDS and len(part.args) <= PART_ARGUMENTS + FIELDS_AT
        )


def scheduled_call(
    rows: Sequence[Row], ordinary: Sequence[Any], count: int, **words: Any
) -> Call[AppendReply]:
    size = 10 * count
    taken = count + sum(max(1, row.records) for row in rows)
    rest = [word for row in rows for word in row] + list(ordinary)
    each = {"count": taken, "size": size, "max_timestamp": 1, "max_count": 10**5}
    each |= {"max_bytes": 10**9, "channel": "c", "ordinary": count, "rows": len(rows)}
    return Keys().partition("t", 0, ID).schedule_add(rest, **(each | words))


def waiting_row(n: int, size: int = 10, records: int = 1) -> Row:
    return Row("at", n, b"", records, size, 5, b"x" * size)


CANCELLED = Row("cancel", 0, b"id", 0, 0, -1, b"")
BATCH = [b"a batch of 9,000 records"]


@pytest.mark.parametrize(
    ("scheduled", "fields", "ordinary", "parts"),
    [
        ([waiting_row(n) for n in range(PART_RECORDS)], [], 0, [PART_RECORDS]),
        ([waiting_row(n) for n in range(PART_RECORDS + 1)], [], 0, [PART_RECORDS, 1]),
        ([waiting_row(n, PART_BYTES) for n in range(2)], [], 0, [1, 1]),
        ([waiting_row(1, records=500)] * 3 + [CANCELLED], [], 0, [1501]),
        ([CANCELLED] * (PART_RECORDS + 1), BATCH, 9000, [9000, PART_RECORDS, 1]),
        ([waiting_row(1)], BATCH, 9000, [9001]),
        (
            [waiting_row(1)],
            record_entries.fields_of(rows(PART_RECORDS + 5)),
            PART_RECORDS + 5,
            [PART_RECORDS, 5, 1],
        ),
    ],
    ids=["a part", "rows", "large rows", "rows of many", "batch", "small batch", "record"],
)
def test_a_batch_with_scheduled_records_is_cut_between_rows(
    scheduled: list[Row], fields: list[Any], ordinary: int, parts: list[int]
) -> None:
    words = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 7, "transaction": EXPIRED}
    whole = scheduled_call(scheduled, fields, ordinary, **words)
    made = sent(whole)
    assert [count_of(part) for part in made] == parts
    assert [sequence_of(part)[2] - 7 for part in made] == [sum(parts[:n]) for n in range(len(made))]
    assert [part.args[TRANSACTION_AT] for part in made] == [EXPIRED] + [-1] * (len(made) - 1)
    assert [row for part in made for row in rows_of(part)[0]] == scheduled
    assert sum(map(size_of, made)) == size_of(whole)
    assert sum(int(part.args[ORDINARY_AT]) for part in made) == ordinary
    left = [
        sum(row.records for part in made[n + 1 :] for row in rows_of(part)[0]) for n in range(9)
    ]
    assert [part.args[ORDINARY_AT + 2] for part in made] == left[: len(made)]


def commands_of(call: Call[AppendReply]) -> bytes:
    """Return the commands that are sent for a call, as bytes of the protocol."""
    packer = Packer()
    for part in sent(call):
        packer.add(("EVALSHA", *part.keys, *part.args))
    return b"".join(packer.take())


@pytest.mark.parametrize("transaction", [-1, 7, EXPIRED])
@pytest.mark.parametrize("found", [rows(MANY), rows(MANY, headers=3), rows(5)])
def test_packed_parts_are_sent_as_the_call_is(found: list[Record], transaction: int) -> None:
    words = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 7}
    whole = call_of(found, transaction=max(transaction, -1), **words)
    early = packed(whole)
    assert is_packed(early) == (len(found) > PART_RECORDS)
    if transaction == EXPIRED:
        early, whole = allow_expired_producer(early), allow_expired_producer(whole)
    assert commands_of(early) == commands_of(whole)


def test_packed_parts_with_scheduled_records_are_sent_as_the_call_is() -> None:
    scheduled = [waiting_row(n) for n in range(PART_RECORDS + 1)]
    fields = record_entries.fields_of(rows(PART_RECORDS + 5))
    whole = scheduled_call(scheduled, fields, PART_RECORDS + 5, transaction=EXPIRED)
    assert commands_of(packed(whole)) == commands_of(whole)


def sent(call: Call[AppendReply]) -> list[Call[AppendReply]]:
    """Return what is sent for a call: its parts, or itself."""
    calls: list[Call[AppendReply]] = []
    send_append(SimpleNamespace(send=lambda part, _: calls.append(part)), call, Future())  # type: ignore[arg-type]
    return calls


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ([(0, 10, 1), (0, 12, 1)], (0, 10, 1)),
        ([(0, 10, 0), (0, 12, 1)], (0, 10, 1)),
        ([(0, 10, 0), (0, 12, 0)], (0, 10, 0)),
        ([(0, 10, 1), (0, 13, 1)], (0, -1, 1)),
        ([(0, 10, 1), (45, -1, 0)], (45, -1, 0)),
        ([(46, -1, 0), (0, 12, 0)], (46, -1, 0)),
        ([(46, -1, 0), (56, -1, 0)], (56, -1, 0)),
        ([(59, -1, 0), (59, -1, 0)], (59, -1, 0)),
        ([(0, -1, 0), (0, -1, 1)], (0, -1, 1)),
        ([(44, -1, 0), (45, -1, 0)], (44, -1, 0)),
    ],
)
def test_the_replies_to_parts_are_one_reply(
    replies: list[tuple[int, int, int]], expected: tuple[int, int, int]
) -> None:
    parts = [AppendReply(error, base, 5, 0, -1, stored) for error, base, stored in replies]
    reply = whole_reply(parts, [2] * len(parts))
    assert (reply.error, reply.base, reply.stored) == expected


async def fetched(broker: Broker, offset: int = 0) -> list[Record]:
    """Return all records from the offset on, by as many requests as it takes."""
    found: list[Record] = []
    while more := rows_in((await fetch(broker, offset)).records):
        found += more
        offset = more[-1][0] + 1
    return found


def batch(values: list[bytes], producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    found: list[Record] = [(n, 1000, b"k", value, []) for n, value in enumerate(values)]
    return bytes(batch_builder.build(found, producer=producer))


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
async def test_a_large_batch_has_consecutive_offsets(broker: Broker, mode: str, kind: str) -> None:
    await broker.create("t", offset_mode=mode, message_timestamp_type=kind)
    values = [b"%d" % n for n in range(MANY)]
    stored = await produce(broker, batch(values))
    assert stored.error_code == ErrorCode.NONE
    found = await fetched(broker, stored.base_offset)
    assert [row[0] for row in found] == [stored.base_offset + n for n in range(MANY)]
    assert [row[3] for row in found] == values


async def test_a_retry_stores_what_is_missing_and_nothing_twice(broker: Broker) -> None:
    await broker.create("t")
    values = [b"%d" % n for n in range(MANY)]
    whole = batch(values, (5, 0, 0))
    topic = await broker.services.topics.get("t")
    assert topic is not None
    found: list[Record] = [(n, 1000, b"k", value, []) for n, value in enumerate(values)]
    one = call_of(
        found,
        broker.services.keys,
        topic_id=topic.id,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
    )
    for part in list(parts_of(one))[:2]:
        assert not (await broker.services.store.run(part)).error
    first = await produce(broker, whole)
    again = await produce(broker, whole)
    assert (first.error_code, again.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert first.base_offset == again.base_offset
    found = await fetched(broker)
    assert [row[3] for row in found] == values


async def test_batches_of_a_producer_without_state_here_are_taken_in_order(
    broker: Broker,
) -> None:
    await broker.create("t")
    values = [b"%d" % n for n in range(random.Random(1).randrange(MANY, 2 * MANY))]
    assert not (await produce(broker, batch(values, (5, 0, 77)))).error_code
    assert not (await produce(broker, batch([b"last"], (5, 0, 77 + len(values))))).error_code
    found = await fetched(broker)
    assert [row[3] for row in found] == [*values, b"last"]
