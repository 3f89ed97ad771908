"""Check ListOffsets, OffsetForLeaderEpoch, DescribeLogDirs and DescribeProducers."""

import struct
from time import time
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.context import Context
from korvet.handlers.list_offsets import offset_at
from korvet.log.validator import prepare_append
from korvet.security.session import Session
from korvet.topics.table import Topic
from korvet.wire import batch_builder, records
from korvet.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from korvet.wire.messages.describe_producers import DescribeProducersRequest
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from korvet.wire.structs import PartitionIndexes, TopicPartitions
from tests.support.connected_broker import Broker

LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6


async def fill(broker: Broker, *moments: int, name: str = "t", producer: int = -1) -> None:
    """Append a record to partition 0 for each timestamp."""
    topic = await broker.services.topics.get(name)
    assert topic is not None
    for sequence, moment in enumerate(moments):
        call = broker.services.keys.partition(name, 0, topic.id).append(
            count=1,
            size=100,
            max_timestamp=moment,
            producer_id=producer,
            producer_epoch=min(producer, 3),
            base_sequence=sequence if producer >= 0 else -1,
            fields=[4, b"value", b"v", b"timestamp", b"%d" % moment],
        )
        assert (await broker.services.store.run(call)).error == 0


async def test_a_partition_named_twice_in_version_0_is_returned_twice(broker: Broker) -> None:
    await broker.create("t", 1, offset_mode="dense")
    await fill(broker, 5, 6)
    rows = [
        ListOffsetsTopic(
            name="t",
            partitions=[
                ListOffsetsPartition(partition_index=0, timestamp=moment, max_num_offsets=9)
            ],
        )
        for moment in (LATEST, EARLIEST, LATEST)
    ]
    answer = await broker.ask(ListOffsetsRequest(replica_id=-1, topics=rows), 0)
    found = [(row.error_code, row.old_style_offsets) for t in answer.topics for row in t.partitions]
    assert found == [(E.NONE, [2]), (E.NONE, [0]), (E.NONE, [2])]


async def listed(
    broker: Broker,
    moment: int,
    name: str = "t",
    number: int = 0,
    version: int = 11,
    epoch: int = -1,
) -> Any:
    place = ListOffsetsPartition(
        partition_index=number, timestamp=moment, current_leader_epoch=epoch, max_num_offsets=1
    )
    topic = ListOffsetsTopic(name=name, partitions=[place])
    request = ListOffsetsRequest(replica_id=-1, topics=[topic])
    return (await broker.ask(request, version)).topics[0].partitions[0]


async def test_offsets_are_found_by_special_and_real_timestamps(broker: Broker) -> None:
    await broker.create("t", offset_mode="dense")
    await fill(broker, 50, 90, 10)
    for moment, answer in (
        (LATEST, (-1, 3)),
        (EARLIEST, (-1, 0)),
        (EARLIEST_LOCAL, (-1, 0)),
        (NEWEST, (90, 1)),
        (TIERED, (-1, -1)),
        (PENDING, (-1, -1)),
        (0, (50, 0)),
        (50, (50, 0)),
        (51, (90, 1)),
        (91, (-1, -1)),
    ):
        found = await listed(broker, moment)
        assert (found.error_code, found.timestamp, found.offset) == (E.NONE, *answer), moment


async def store(broker: Broker, topic: Topic, data: bytes) -> Any:
    """Append a producer's batch unchanged."""
    call = prepare_append(
        topic,
        0,
        data,
        version=13,
        now_ms=int(time() * 1000),
        settings=broker.services.settings,
    )
    return await broker.services.store.run(call)


async def test_a_batch_that_cannot_be_read_is_found_by_what_its_header_says(
    broker: Broker,
) -> None:
    await broker.create(
        "t", storage_format="batch", offset_mode="dense", records_validation="header"
    )
    topic = await broker.services.topics.get("t")
    assert topic is not None
    now_ms = int(time() * 1000)
    for turn, name in enumerate(("a", "\ufffd", "c")):
        data = batch_builder.build([(0, now_ms + turn, b"k", b"v", [(name, b"x")])])
        data[:] = data.replace("\ufffd".encode(), b"\xff\xfe\xfd")
        struct.pack_into(">I", data, 17, records.checksum(data))
        assert (await store(broker, topic, bytes(data))).error == 0
    for moment, offset in ((now_ms, 0), (now_ms + 1, 1), (now_ms + 2, 2), (NEWEST, 2)):
        found = await listed(broker, moment)
        assert (found.error_code, found.offset) == (E.NONE, offset)


@pytest.mark.parametrize("mode", ["dense", "time"])
async def test_the_newest_is_found_among_what_is_left(broker: Broker, mode: str) -> None:
    await broker.create("t", offset_mode=mode)
    await fill(broker, 100, 0, 50, 50, 10)
    first = await listed(broker, NEWEST)
    assert first.timestamp == 100
    topic = await broker.services.topics.get("t")
    assert topic is not None
    before = first.offset + 1
    cut = broker.services.keys.partition("t", 0, topic.id).delete_records(before=before)
    assert (await broker.services.store.run(cut)).error == 0
    found = await listed(broker, NEWEST)
    assert (found.timestamp, found.offset) == (50, (await listed(broker, 50)).offset)


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_stamped_records_are_found_by_the_time_of_their_append(
    broker: Broker, form: str
) -> None:
    stamped = "LogAppendTime"
    await broker.create(
        "t", storage_format=form, message_timestamp_type=stamped, offset_mode="dense"
    )
    topic = await broker.services.topics.get("t")
    assert topic is not None
    now_ms = int(time() * 1000)
    data = bytes(batch_builder.build([(0, now_ms - 100_000, None, b"v", [])]))
    appended = await store(broker, topic, data)
    for moment in (now_ms - 50_000, NEWEST):
        found = await listed(broker, moment)
        assert (found.timestamp, found.offset) == (appended.append_time, 0)


@pytest.mark.parametrize("version", range(12))
async def test_the_end_is_found_in_every_version(broker: Broker, version: int) -> None:
    await broker.create("t", offset_mode="dense")
    await fill(broker, 1, 2)
    found = await listed(broker, LATEST, version=version)
    assert found.error_code == E.NONE
    assert found.old_style_offsets == [2] if version == 0 else found.offset == 2


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        ({"name": "absent"}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"name": "a b"}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"number": 99}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"epoch": 1}, E.UNKNOWN_LEADER_EPOCH),
        ({"epoch": -2}, E.FENCED_LEADER_EPOCH),
        ({"epoch": 0}, E.NONE),
    ],
)
async def test_what_cannot_be_listed_is_refused(
    broker: Broker, wish: dict[str, Any], error: E
) -> None:
    await broker.create("t")
    found = await listed(broker, LATEST, **wish)
    assert E(found.error_code) is error
    assert (found.offset >= 0) == (error is E.NONE)


@pytest.mark.parametrize(
    ("moment", "version"), [(NEWEST, 6), (EARLIEST_LOCAL, 7), (TIERED, 8), (PENDING, 10), (-7, 11)]
)
async def test_a_version_accepts_only_its_special_timestamps(
    broker: Broker, moment: int, version: int
) -> None:
    await broker.create("t")
    found = await listed(broker, moment, version=version)
    assert (E(found.error_code), found.offset) == (E.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize("version", range(5))
async def test_the_one_epoch_ends_at_the_end(broker: Broker, version: int) -> None:
    await broker.services.epochs.start()
    await broker.create("t", offset_mode="dense")
    await fill(broker, 1, 2)

    async def end(epoch: int, current: int = -1, number: int = 0, name: str = "t") -> Any:
        place = OffsetForLeaderPartition(
            partition=number, current_leader_epoch=current, leader_epoch=epoch
        )
        topic = OffsetForLeaderTopic(topic=name, partitions=[place])
        answer = await broker.ask(OffsetForLeaderEpochRequest(topics=[topic]), version)
        row = answer.topics[0].partitions[0]
        return row.error_code, row.leader_epoch, row.end_offset

    now = broker.services.epochs.epoch
    assert await end(now) == (E.NONE, now if version else -1, 2)
    assert await end(now + 5) == await end(-1) == (E.NONE, -1, -1)
    assert await end(0, number=9) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert await end(0, name="absent") == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    if version >= 2:
        assert await end(now, current=now) == (E.NONE, now, 2)
        assert await end(now, current=now + 1) == (E.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert await end(0, current=-2) == (E.FENCED_LEADER_EPOCH, -1, -1)


@pytest.mark.parametrize("version", range(6))
async def test_the_log_directory_has_the_sizes_of_partitions(broker: Broker, version: int) -> None:
    await broker.create("t", 2)
    await broker.create("u", 1)
    await fill(broker, 1, 2, 3)

    async def sizes(*names: str, everything: bool = False) -> dict[tuple[str, int], int]:
        topics = [TopicPartitions(topic=name, partitions=[0, 1, 99]) for name in names]
        request = DescribeLogDirsRequest(topics=None if everything else topics)
        (place,) = (await broker.ask(request, version)).results
        assert (place.error_code, place.log_dir, place.is_cordoned) == (E.NONE, "redis", False)
        assert (place.usable_bytes > 0) == (place.total_bytes > 0) == (version >= 4)
        assert len({topic.name for topic in place.topics}) == len(place.topics)
        return {
            (topic.name, row.partition_index): row.partition_size
            for topic in place.topics
            for row in topic.partitions
        }

    assert await sizes(everything=True) == {("t", 0): 300, ("t", 1): 0, ("u", 0): 0}
    assert await sizes("t", "absent", "t") == {("t", 0): 300, ("t", 1): 0}
    assert await sizes() == {}


async def test_producers_are_described_as_partitions_remember_them(broker: Broker) -> None:
    await broker.create("t", 2)
    await fill(broker, 1, 2, 3, producer=5)
    await fill(broker, 1)
    topics = [
        PartitionIndexes(name="t", partition_indexes=[0, 1, 99]),
        PartitionIndexes(name="absent", partition_indexes=[0]),
    ]
    answer = await broker.ask(DescribeProducersRequest(topics=topics))
    rows = [row for topic in answer.topics for row in topic.partitions]
    assert [E(row.error_code) for row in rows] == [
        E.NONE,
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    (state,) = rows[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (5, 3, 2)
    assert state.last_timestamp > 0
    assert state.current_txn_start_offset == -1
    assert all(row.active_producers == [] for row in rows[1:])


@pytest.mark.parametrize("version", range(12))
async def test_a_topic_that_was_made_again_is_unknown_until_it_is_looked_up(
    broker: Broker, version: int
) -> None:
    await broker.create("t")
    old = await broker.made_again("t")
    context = Context(
        broker.services, ListOffsetsRequest.__message__.key, version, "test", Session("127.0.0.1")
    )
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    answer = await offset_at(old, asked, False, context)
    assert E(answer.error_code) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await listed(broker, LATEST, version=version)).error_code == E.NONE


@pytest.mark.parametrize("mode", ["dense", "time"])
async def test_the_newest_may_be_an_entry_that_others_added(broker: Broker, mode: str) -> None:
    await broker.create("t", offset_mode=mode)
    stream = broker.services.keys.partition("t", 0).stream

    async def added(*fields: Any) -> None:
        await broker.services.store.command("XADD", stream, "*", "value", "v", *fields)

    await added("timestamp", 7)
    assert (await listed(broker, NEWEST)).timestamp == 7
    await fill(broker, 50, 90, 10)
    assert (await listed(broker, NEWEST)).timestamp == 90
    future = int(time() * 1000) + 10**7
    await added("timestamp", future)
    await added("timestamp", 80)
    found = await listed(broker, NEWEST)
    assert found.timestamp == future
    if mode == "dense":
        assert found.offset == 4


@pytest.mark.parametrize("form", ["record", "batch"])
async def test_no_time_is_too_late_to_be_found(broker: Broker, form: str) -> None:
    last, late = 2**63 - 1, 2**62 + 2**61
    await broker.create(
        "t",
        storage_format=form,
        offset_mode="dense",
        message_timestamp_after_max_ms=str(last),
    )
    assert (await listed(broker, last)).offset == -1
    topic = await broker.services.topics.get("t")
    assert topic is not None
    for moment in (5, late, last, late):
        data = bytes(batch_builder.build([(0, moment, None, b"v", [])]))
        assert (await store(broker, topic, data)).error == 0
    for moment, answer in (
        (NEWEST, (last, 2)),
        (last, (last, 2)),
        (late + 1, (last, 2)),
        (late, (late, 1)),
        (2**62, (late, 1)),
        (6, (late, 1)),
        (5, (5, 0)),
    ):
        found = await listed(broker, moment)
        assert (found.timestamp, found.offset) == answer, moment


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("base", [10**13, 10**15 + 7, 1_795_000_000_123_456_789, 2**61 + 1])
async def test_times_in_micro_and_nanoseconds_are_compared_exactly(
    broker: Broker, form: str, base: int
) -> None:
    await broker.create(
        "t",
        storage_format=form,
        offset_mode="dense",
        message_timestamp_after_max_ms=str(2**63 - 1),
    )
    topic = await broker.services.topics.get("t")
    assert topic is not None
    for later in (1, 3, 9, 4, 9, 2):
        data = bytes(batch_builder.build([(0, base + later, None, b"v", [])]))
        assert (await store(broker, topic, data)).error == 0
    for moment, later, offset in ((NEWEST, 9, 2), (base + 9, 9, 2), (base + 4, 9, 2), (base, 1, 0)):
        found = await listed(broker, moment)
        assert (found.timestamp, found.offset) == (base + later, offset)
    assert (await listed(broker, base + 10)).offset == -1
    data = bytes(batch_builder.build([(0, 5, None, b"v", []), (1, base + 20, None, b"v", [])]))
    assert (await store(broker, topic, data)).error == 0
    found = await listed(broker, NEWEST)
    assert (found.timestamp, found.offset) == (base + 20, 7)


async def test_an_epoch_before_all_others_ends_at_the_log_start(broker: Broker) -> None:
    await broker.create("t", 1, offset_mode="dense")
    await fill(broker, 1, 2, 3)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    cut = broker.services.keys.partition("t", 0, topic.id).delete_records(before=2)
    assert (await broker.services.store.run(cut)).error == 0
    part = OffsetForLeaderPartition(partition=0, leader_epoch=-5)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[part])]
    )
    found = (await broker.ask(request)).topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (E.NONE, -5, 2)
