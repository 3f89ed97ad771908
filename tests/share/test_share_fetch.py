"""Check ShareFetch and ShareAcknowledge: sessions, acquired records, waits, Kafka 4.3's errors."""

import asyncio
from time import time
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from korvet.base.errors import ErrorCode as E
from korvet.share.service import Acknowledge
from korvet.share.sessions import MAX_PARTITIONS
from tests.share.members import Member, configure, fill, runs_of, values_of
from tests.support.connected_broker import Broker
from tests.support.exchanges import packed, produce, rows, shapes

ACCEPT, RELEASE, REJECT = Acknowledge.ACCEPT, Acknowledge.RELEASE, Acknowledge.REJECT
RENEW = Acknowledge.RENEW


async def ready(broker: Broker, *counts: int, **configs: str) -> Member:
    """Create a topic with records; return a member of a group that begins at the first record."""
    await broker.create("t", 2, **{"offset_mode": "dense", "storage_format": "batch", **configs})
    await configure(broker, share_auto_offset_reset="earliest")
    await fill(broker, *counts)
    return Member(broker)


@shapes
async def test_members_share_the_records_of_a_partition(
    broker: Broker, form: str, mode: str
) -> None:
    one = await ready(broker, 3, 4, storage_format=form, offset_mode=mode)
    two = Member(broker, "two")
    mine, other = await one.row(0, max_records=3), await two.row(0)
    assert [*values_of(mine).values()] == [b"0", b"1", b"2"]
    assert [*values_of(other).values()] == [b"0", b"1", b"2", b"3"]
    assert not values_of(mine).keys() & values_of(other).keys()
    assert await one.poll() == await two.poll() == []
    for member, row in ((one, mine), (two, other)):
        ranges = [(first, last, int(ACCEPT)) for first, last, _ in runs_of(row)]
        assert await member.acknowledge(*ranges) == (0, 0)
    assert await one.poll() == await two.poll() == []


@pytest.mark.parametrize(
    ("reset", "begins"),
    [("", 6), ("latest", 6), ("earliest", 0), ("by_duration:PT1H", 4), ("by_duration:P3D", 2)],
)
async def test_the_group_begins_where_its_config_says(
    broker: Broker, reset: str, begins: int
) -> None:
    await broker.create("t", offset_mode="dense")
    now, day = int(time() * 1000), 86_400_000
    for moment in (now - 4 * day, now - 2 * day, now):
        assert (await produce(broker, packed(rows(b"a", b"b", time=moment), 13))).error_code == 0
    if reset:
        await configure(broker, share_auto_offset_reset=reset)
    member = Member(broker)
    found = await member.poll(0)
    await fill(broker, 1)
    assert (found or await member.poll())[0][0] == begins


async def test_a_released_record_is_delivered_again_until_the_limit(broker: Broker) -> None:
    member = await ready(broker, 3)
    await configure(broker, share_delivery_count_limit="2")
    assert await member.poll(0) == [(0, 2, 1)]
    assert await member.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)) == (0, 0)
    assert await member.poll() == [(1, 1, 2)]
    assert await member.acknowledge((1, 1, RELEASE)) == (0, 0)
    assert await member.poll() == []


async def test_more_acknowledgements_than_a_step_are_those_of_several_calls(broker: Broker) -> None:
    member = await ready(broker, 1, 2100)
    assert await member.poll(0, max_records=2101) == [(0, 2100, 1)]
    types = [int(ACCEPT), int(RELEASE)] * 1050
    assert await member.acknowledge_batches((0, 0, [1]), (1, 2100, types)) == (0, 0)
    row = await member.row(max_records=2100)
    assert [first for first, _, _ in runs_of(row)] == list(range(2, 2101, 2))


async def test_acknowledgements_may_come_with_the_next_fetch(broker: Broker) -> None:
    member = await ready(broker, 4, 2)
    assert await member.poll(0, max_records=4) == [(0, 3, 1)]
    row = await member.row(acks={0: [(0, 1, [1, 2]), (2, 3, [1])]})
    assert (row.error_code, row.acknowledge_error_code) == (0, 0)
    assert runs_of(row) == [(1, 1, 2), (4, 5, 1)]
    row = await member.row(acks={0: [(0, 200, [1])]}, max_wait_ms=10)
    assert (row.error_code, row.acknowledge_error_code) == (0, E.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("batches", "error"),
    [
        ([(2, 2, [9])], E.INVALID_REQUEST),
        ([(2, 2, [-1])], E.INVALID_REQUEST),
        ([(2, 2, [4])], E.INVALID_REQUEST),
        ([(3, 2, [1])], E.INVALID_REQUEST),
        ([(-1, 2, [1])], E.INVALID_REQUEST),
        ([(2, 3, [])], E.INVALID_REQUEST),
        ([(2, 3, [1, 1, 1])], E.INVALID_REQUEST),
        ([(2, 20, [1])], E.INVALID_REQUEST),
        ([(50, 60, [1])], E.INVALID_REQUEST),
        ([(2, 2, [1]), (2, 2, [1])], E.INVALID_RECORD_STATE),
        ([(1, 4, [1])], E.INVALID_RECORD_STATE),
        ([(6, 7, [1])], E.INVALID_RECORD_STATE),
        ([(0, 0, [1])], E.NONE),
        ([(3, 3, [2]), (2, 2, [1])], E.INVALID_REQUEST),
        ([], E.NONE),
    ],
)
async def test_an_acknowledgement_has_the_error_of_kafka(
    broker: Broker, batches: list[tuple[int, int, list[int]]], error: E
) -> None:
    """The member has accepted offset 0 and holds 1 to 5 except 4. Another holds 6 and 7."""
    member, other = await ready(broker, 6, 2), Member(broker, "other")
    assert await member.poll(0, max_records=6) == [(0, 5, 1)]
    assert await other.poll(0) == [(6, 7, 1)]
    assert await member.acknowledge((0, 0, ACCEPT), (4, 4, ACCEPT)) == (0, 0)
    assert await member.acknowledge_batches(*batches) == (0, error)


async def test_a_session_has_the_errors_of_kafka(broker: Broker) -> None:
    member = await ready(broker, 1)
    for words, error in (
        ({"share_session_epoch": 3}, E.SHARE_SESSION_NOT_FOUND),
        ({"share_session_epoch": -1}, E.SHARE_SESSION_NOT_FOUND),
        ({"acks": {0: [(0, 0, [1])]}}, E.INVALID_REQUEST),
        ({"share_acquire_mode": 7}, E.INVALID_REQUEST),
        ({"share_session_epoch": 1, "is_renew_ack": True}, E.INVALID_REQUEST),
    ):
        assert (await member.fetch(**words)).error_code == error
    assert (await Member(broker, "").fetch(0)).error_code == E.INVALID_REQUEST
    epochs = {0: E.INVALID_SHARE_SESSION_EPOCH, 1: E.SHARE_SESSION_NOT_FOUND}
    for epoch, error in epochs.items():
        assert (await member.acknowledge((0, 0, 1), share_session_epoch=epoch))[0] == error
    assert await member.poll(0) == [(0, 0, 1)]
    for epoch in (2, 3):
        answer = await member.fetch(share_session_epoch=epoch)
        assert answer.error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert await member.acknowledge((0, 0, RENEW), is_renew_ack=True) == (0, 0)
    assert await member.acknowledge((0, 0, ACCEPT), share_session_epoch=-1) == (0, 0)
    assert (await member.fetch(share_session_epoch=-1)).error_code == E.SHARE_SESSION_NOT_FOUND


async def test_a_partition_that_is_not_there_has_its_error(broker: Broker) -> None:
    member = await ready(broker, 1)
    assert (await member.row(7)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await member.row()).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert await member.poll(0, forget=(7,)) == [(0, 0, 1)]
    assert (await member.acknowledge((0, 0, 1), number=7))[1] == E.UNKNOWN_TOPIC_OR_PARTITION
    unknown = uuid4()
    assert (await member.acknowledge((0, 0, 1), topic_id=unknown))[1] == E.UNKNOWN_TOPIC_ID
    other = Member(broker, "other")
    assert (await other.row(0, topic_id=unknown)).error_code == E.UNKNOWN_TOPIC_ID


async def test_a_session_has_a_bounded_number_of_partitions(broker: Broker) -> None:
    member = await ready(broker, 1)
    assert (await member.fetch(0, 7)).error_code == E.NONE
    session = next(iter(broker.services.share.sessions._sessions.values()))
    assert session.seen == {(await member.topic_id(), 0)}
    refused = await member.fetch(*range(10, 10 + MAX_PARTITIONS))
    assert refused.error_code == E.SHARE_SESSION_LIMIT_REACHED
    assert len(session.partitions) == 2


async def test_a_topic_of_byte_offsets_is_not_shared(broker: Broker) -> None:
    member = await ready(broker, offset_mode="bytes")
    assert (await member.row(0)).error_code == E.INVALID_TOPIC_EXCEPTION
    assert (await member.acknowledge((0, 0, ACCEPT)))[1] == E.INVALID_TOPIC_EXCEPTION


async def test_a_forgotten_partition_is_no_longer_fetched(broker: Broker) -> None:
    member = await ready(broker)
    await fill(broker, 1, number=1)
    assert await member.poll(0, 1) == [(0, 0, 1)]
    await fill(broker, 1, number=1)
    assert await member.poll(forget=(1,)) == []
    assert await member.acknowledge((0, 0, ACCEPT), number=1) == (0, 0)
    assert await member.poll(1) == [(1, 1, 1)]


@pytest.mark.parametrize("way", ["close", "acknowledge", "hang up"])
async def test_the_end_of_a_session_releases_its_records(broker: Broker, way: str) -> None:
    one, two = await ready(broker, 4), Member(broker, "two")
    assert await one.poll(0) == [(0, 3, 1)]
    if way == "close":
        assert (await one.fetch(share_session_epoch=-1)).error_code == 0
    elif way == "acknowledge":
        assert await one.acknowledge((0, 0, REJECT), share_session_epoch=-1) == (0, 0)
    else:
        one.hang_up()
        await broker.services.share.sessions.finish()
    assert await two.poll(0) == [(way == "acknowledge", 3, 2)]
    assert len(broker.services.share.sessions) == 1


async def test_a_session_that_is_opened_again_keeps_its_records(broker: Broker) -> None:
    member = await ready(broker, 4)
    assert await member.poll(0) == [(0, 3, 1)]
    member.epoch = 0
    assert await member.poll(0) == []
    again = Member(broker, epoch=0)
    assert await again.poll(0) == []
    member.hang_up()
    await broker.services.share.sessions.finish()
    assert await again.acknowledge((0, 0, ACCEPT)) == (0, 0)
    again.hang_up()
    await broker.services.share.sessions.finish()
    assert await Member(broker, "other").poll(0) == [(1, 3, 2)]


async def test_sessions_are_limited(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    member = await ready(broker, 1)
    monkeypatch.setattr(broker.services.share.sessions, "_limit", lambda: 1)
    assert await member.poll(0) == [(0, 0, 1)]
    answer = await Member(broker, "two").fetch(0)
    assert answer.error_code == E.SHARE_SESSION_LIMIT_REACHED
    member.epoch = 0
    assert (await member.fetch(0)).error_code == 0


async def test_any_broker_serves_any_member(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker has no session and no position, but reads the same state."""
    member = await ready(broker, 4)
    assert await member.poll(0) == [(0, 3, 1)]
    sessions, acquirer = broker.services.share.sessions, broker.services.share.acquirer
    monkeypatch.setattr(sessions, "_sessions", {})
    acquirer._positions.clear()
    answer = await member.fetch()
    assert answer.error_code == E.SHARE_SESSION_NOT_FOUND
    member.epoch = 0
    assert await member.poll(0) == []
    assert await member.acknowledge((0, 3, ACCEPT)) == (0, 0)


async def test_record_limit_is_exact_and_batch_optimized_takes_whole_batches(
    broker: Broker,
) -> None:
    member = await ready(broker, 10, 10, 10)
    assert await member.poll(0, max_records=4, share_acquire_mode=1) == [(0, 3, 1)]
    assert await member.poll(max_records=4) == [(4, 9, 1)]
    assert await member.poll(max_records=11) == [(10, 29, 1)]
    assert await member.poll(max_records=0) == []


@pytest.mark.parametrize(
    ("size", "runs"),
    [
        (0, [(0, 2), (3, 6), (7, 8), (9, 13), (14, 14), (15, 15)]),
        (3, [(0, 2), (3, 6), (7, 13), (14, 15)]),
        (4, [(0, 6), (7, 13), (14, 15)]),
        (8, [(0, 8), (9, 15)]),
        (500, [(0, 15)]),
    ],
)
async def test_a_range_ends_at_the_batch_that_fills_the_batch_size(
    broker: Broker, size: int, runs: list[tuple[int, int]]
) -> None:
    """The expected ranges are those of Kafka 4.3; record limit mode has no batch size."""
    member = await ready(broker, 3, 4, 2, 5, 1, 1)
    assert await member.poll(0, batch_size=size) == [(*run, 1) for run in runs]
    assert await member.acknowledge((0, 15, RELEASE)) == (0, 0)
    assert await member.poll(batch_size=size, share_acquire_mode=1) == [(0, 15, 2)]


async def test_records_of_layout_record_are_cut_at_the_batch_size(broker: Broker) -> None:
    member = await ready(broker, 5, 5, storage_format="record")
    assert await member.poll(0, batch_size=4) == [(0, 3, 1), (4, 7, 1), (8, 9, 1)]


@shapes
async def test_a_fetch_waits_for_min_bytes(broker: Broker, form: str, mode: str) -> None:
    one = await ready(broker, 2, storage_format=form, offset_mode=mode)
    waiting = asyncio.create_task(one.fetch(0, 1, min_bytes=1000, max_wait_ms=600_000))
    big = packed(rows(*[bytes(200)] * 2), 13)
    await produce(broker, big)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    # The bytes of all partitions count.
    await produce(broker, big, number=1)
    await produce(broker, big, number=1)
    async with asyncio.timeout(30):
        answer = await waiting
    assert {len(values_of(row)) for row in answer.responses[0].partitions} == {4}


async def test_after_its_wait_a_fetch_has_fewer_than_min_bytes(broker: Broker) -> None:
    one, two = await ready(broker, 2), Member(broker, "two")
    asking = asyncio.create_task(one.poll(0, min_bytes=100_000, max_wait_ms=300))
    await asyncio.sleep(0.05)
    # In the meantime the records are available.
    assert await two.poll(0, max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
    assert await two.acknowledge((0, 0, RELEASE)) == (0, 0)
    assert await asking == [(0, 0, 2), (1, 1, 1)]
    # No more bytes than the response may have, and none without a wait.
    await fill(broker, 2)
    assert await one.poll(min_bytes=100_000, max_bytes=50, max_wait_ms=600_000) == [(2, 3, 1)]
    await fill(broker, 2)
    assert await one.poll(min_bytes=100_000) == [(4, 5, 1)]
    assert await one.poll(min_bytes=0, max_wait_ms=600_000) == []


async def test_a_lapsed_lock_counts_for_min_bytes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await ready(broker, 2), Member(broker, "two")
    short = msgspec.structs.replace(broker.services.share.config("g"), record_lock_duration_ms=200)
    monkeypatch.setattr(broker.services.share, "config", lambda _: short)
    assert await one.poll(0) == [(0, 1, 1)]
    async with asyncio.timeout(30):
        assert await two.poll(0, min_bytes=60, max_wait_ms=600_000) == [(0, 1, 2)]


async def test_many_small_batches_fit_one_response(broker: Broker) -> None:
    member = await ready(broker, *[1] * 40)
    assert await member.poll(0, max_records=25) == [(0, 24, 1)]
    assert await member.poll(max_records=25) == [(25, 39, 1)]


async def test_a_response_has_no_more_bytes_than_requested(broker: Broker) -> None:
    member = await ready(broker)
    big = packed(rows(*[bytes(100_000)] * 4), 13)
    for number in (0, 1):
        for _ in range(4):
            await produce(broker, big, number=number)
    seen = 0
    for n in range(12):
        answer = await member.fetch(*([] if n else (0, 1)), max_bytes=900_000)
        found = [row for topic in answer.responses for row in topic.partitions if row.records]
        assert sum(len(row.records) for row in found) <= 900_000
        seen += sum(last - first + 1 for row in found for first, last, _ in runs_of(row))
    assert seen == 32
    memory = broker.services.response_memory
    assert memory.bytes == 0
    # A batch is sent whole, however few bytes are requested.
    await produce(broker, big)
    assert await member.poll(max_bytes=1) == [(16, 19, 1)]


async def test_the_partitions_of_a_session_take_turns(broker: Broker) -> None:
    member = await ready(broker, 2, 2, 2)
    await fill(broker, 2, 2, 2, number=1)
    got = []
    answer = await member.fetch(0, 1, max_records=2)
    for _ in range(4):
        got += [
            row.partition_index for t in answer.responses for row in t.partitions if row.records
        ]
        answer = await member.fetch(max_records=2)
    assert sorted(got) == [0, 0, 1, 1]


async def test_more_than_the_locks_of_a_partition_are_not_acquired(broker: Broker) -> None:
    member = await ready(broker, *[50] * 5)
    await configure(broker, share_partition_max_record_locks="100")
    assert await member.poll(0) == [(0, 99, 1)]
    waiting = asyncio.create_task(Member(broker, "two").poll(0, max_wait_ms=60_000))
    await asyncio.sleep(0.05)
    assert await member.acknowledge((0, 59, ACCEPT)) == (0, 0)
    async with asyncio.timeout(30):
        assert await waiting == [(100, 199, 1)]


@pytest.mark.parametrize("cause", ["append", "release", "close", "expiry"])
async def test_a_fetch_waits_until_there_are_records(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    one, two = await ready(broker, *([] if cause == "append" else [2])), Member(broker, "two")
    if cause == "expiry":
        short = msgspec.structs.replace(
            broker.services.share.config("g"), record_lock_duration_ms=200
        )
        monkeypatch.setattr(broker.services.share, "config", lambda _: short)
    assert await one.poll(0) == ([] if cause == "append" else [(0, 1, 1)])
    waiting = asyncio.create_task(two.poll(0, max_wait_ms=600_000))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    if cause == "append":
        await fill(broker, 2)
    elif cause == "release":
        assert await one.acknowledge((0, 1, RELEASE)) == (0, 0)
    elif cause == "close":
        await one.fetch(share_session_epoch=-1)
    async with asyncio.timeout(30):
        assert await waiting == [(0, 1, 1 if cause == "append" else 2)]


async def test_a_fetch_waits_no_longer_than_it_says(broker: Broker) -> None:
    member = await ready(broker)
    async with asyncio.timeout(30):
        assert await member.poll(0, max_wait_ms=20) == []


async def test_a_released_record_waits_for_its_delay(broker: Broker) -> None:
    member = await ready(broker, 1)
    await configure(broker, share_retry_backoff_ms="150")
    assert await member.poll(0) == [(0, 0, 1)]
    assert await member.acknowledge((0, 0, RELEASE)) == (0, 0)
    assert await member.poll() == []
    async with asyncio.timeout(30):
        assert await member.poll(max_wait_ms=60_000) == [(0, 0, 2)]


async def test_entries_of_other_redis_clients_are_shared_too(broker: Broker) -> None:
    member = await ready(broker, storage_format="record")
    assert await member.poll(0) == []
    waiting = asyncio.create_task(member.row(max_wait_ms=60_000))
    await asyncio.sleep(0)
    stream = broker.services.keys.partition("t", 0).stream
    await broker.services.store.command("XADD", stream, "*", "value", "native")
    async with asyncio.timeout(30):
        assert values_of(await waiting) == {0: b"native"}


async def test_renewal_can_be_disabled(broker: Broker) -> None:
    member = await ready(broker, 1)
    await configure(broker, share_renew_acknowledge_enable="false")
    await member.poll(0)
    assert await member.acknowledge((0, 0, RENEW), is_renew_ack=True) == (0, E.INVALID_REQUEST)


async def test_the_records_of_a_deleted_topic_do_not_return_with_its_name(broker: Broker) -> None:
    member = await ready(broker, 3)
    assert await member.poll(0) == [(0, 2, 1)]
    await broker.made_again("t")
    await broker.services.topics.refresh()
    await fill(broker, 2)
    assert await Member(broker, "two").poll(0) == [(0, 1, 1)]


async def test_a_busy_group_costs_two_round_trips_a_fetch(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = await ready(broker, *[1] * 30)
    await member.poll(0, max_records=5)
    await member.poll(max_records=5)
    calls: list[Any] = []
    run, submit = broker.services.store.run, broker.services.store.submit_command

    def noted_run(call: Any) -> Any:
        calls.append(call.script.name)
        return run(call)

    def noted(*command: Any) -> Any:
        calls.append(command[0])
        return submit(*command)

    monkeypatch.setattr(broker.services.store, "run", noted_run)
    monkeypatch.setattr(broker.services.store, "submit_command", noted)
    assert await member.poll(max_records=5) == [(10, 14, 1)]
    assert [name for name in calls if name.islower()] == ["share.acquire"]
    assert len(calls) <= 3


@shapes
async def test_records_of_one_key_are_delivered_one_after_another(
    broker: Broker, form: str, mode: str
) -> None:
    member = await ready(broker, storage_format=form, offset_mode=mode)
    await configure(broker, share_order="key")
    keys = (b"a", b"a", None, b"b", b"a", None)
    made = [(n, 0, key, b"%d" % n, []) for n, key in enumerate(keys)]
    assert (await produce(broker, packed(made, 13))).error_code == 0
    seen = []
    for _ in range(3):
        row = await member.row(0)
        values = values_of(row)
        seen.append([*values.values()])
        assert await Member(broker, "other").row(0) is None
        ranges = [(first, last, int(ACCEPT)) for first, last, _ in runs_of(row)]
        assert await member.acknowledge(*ranges) == (0, 0)
    assert seen == [[b"0", b"2", b"3", b"5"], [b"1"], [b"4"]]
    assert await member.row() is None
