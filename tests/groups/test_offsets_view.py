"""Check `__consumer_offsets`: the committed offsets as records for tools of Kafka."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.groups.offset_commit import CommittedOffset
from korvet.groups.offsets_view import (
    BITS,
    NAME,
    PARTITIONS,
    OffsetsView,
    encode_key,
    encode_value,
    partition_of,
)
from korvet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from korvet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from korvet.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.connected_broker import Broker
from tests.support.exchanges import packed, rows, rows_in

PARTITION = partition_of("g")

OF_KAFKA = {
    "o4-group": 13,
    "zzz-some-group": 17,
    "grüße-o4": 21,
    "o4-\U0001f600": 7,
    "polygenelubricants": 0,
    "o4:weird{}%": 15,
}
"""Partitions that Kafka 4.3 chose; the hash of the fifth name has no absolute value."""


def view_of(broker: Broker) -> OffsetsView:
    return broker.services.offsets_view


async def commit(
    broker: Broker, offset: int, group: str = "g", partitions: int = 1, topic: str = "t"
) -> None:
    """Commit, and wait until the millisecond of the commit is over."""
    parts = [
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata="m"
        )
        for number in range(partitions)
    ]
    row = OffsetCommitRequestTopic(name=topic, partitions=parts)
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[row]
    )
    answer = await broker.ask(request, 9)
    assert {each.error_code for each in answer.topics[0].partitions} == {E.NONE}
    await begin_millisecond(broker)


async def begin_millisecond(broker: Broker) -> None:
    """Wait for Redis's next millisecond; the next read reads the groups again."""
    first = await moment(broker)
    while await moment(broker) == first:
        pass
    view_of(broker)._next_refresh = 0.0


async def moment(broker: Broker) -> int:
    seconds, micros = map(int, await broker.services.store.command("TIME"))
    return seconds * 1000 + micros // 1000


async def fetched(
    broker: Broker, offset: int, *, version: int = 18, size: int = 1 << 20, least: int = 0
) -> Any:
    place = FetchPartition(partition=PARTITION, fetch_offset=offset, partition_max_bytes=size)
    row = FetchTopic(topic=NAME, topic_id=view_of(broker).topic.uuid, partitions=[place])
    request = FetchRequest(max_wait_ms=0, min_bytes=least, topics=[row])
    answer = await broker.ask(request, version)
    return answer.responses[0].partitions[0]


async def listed(broker: Broker, timestamp: int) -> tuple[int, int]:
    part = ListOffsetsPartition(partition_index=PARTITION, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=NAME, partitions=[part])]
    )
    (row,) = (await broker.ask(request, 9)).topics[0].partitions
    assert row.error_code == E.NONE
    return row.timestamp, row.offset


def test_keys_and_values_have_kafkas_bytes() -> None:
    key = b"\x00\x01\x00\x08o4-group\x00\x07o4-view\x00\x00\x00\x01"
    assert encode_key("o4-group", "o4-view", 1) == key
    commit = CommittedOffset(42, 3, 0x01A21395FADD, "", "méta")
    value = b"\0\3" + b"\0" * 7 + b"*\0\0\0\3\0\5m\xc3\xa9ta\0\0\x01\xa2\x13\x95\xfa\xdd"
    assert encode_value(commit) == value


@pytest.mark.parametrize("group", OF_KAFKA)
def test_a_group_has_the_partition_that_kafka_chooses(group: str) -> None:
    assert partition_of(group) == OF_KAFKA[group]


async def test_metadata_has_it_by_name_and_id_as_an_internal_topic(broker: Broker) -> None:
    topic_id = view_of(broker).topic.uuid
    for wanted in (
        MetadataRequestTopic(name=NAME),
        MetadataRequestTopic(name=None, topic_id=topic_id),
    ):
        (row,) = (await broker.ask(MetadataRequest(topics=[wanted]))).topics
        assert (row.error_code, row.name, row.topic_id) == (E.NONE, NAME, topic_id)
        assert row.is_internal and len(row.partitions) == PARTITIONS
    assert (await broker.ask(MetadataRequest(topics=None))).topics == []
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=NAME)])
    (found,) = (await broker.ask(asked)).topics
    assert found.is_internal and len(found.partitions) == PARTITIONS


async def test_lists_of_all_topics_have_it_once_there_was_a_group(broker: Broker) -> None:
    await broker.create("t")
    listed = (await broker.ask(MetadataRequest(topics=None))).topics
    assert [row.name for row in listed] == ["t"]
    await commit(broker, 5)
    for version in (1, 9, 13):
        listed = (await broker.ask(MetadataRequest(topics=None), version)).topics
        assert [(row.name, row.is_internal) for row in listed] == [(NAME, True), ("t", False)]
    described = (await broker.ask(DescribeTopicPartitionsRequest(topics=[]))).topics
    assert [(row.name, row.is_internal) for row in described] == [(NAME, True), ("t", False)]
    await broker.ask(DeleteGroupsRequest(groups_names=["g"]))
    assert len((await broker.ask(MetadataRequest(topics=None))).topics) == 2


@pytest.mark.parametrize("version", [4, 12, 13, 18])
async def test_a_reader_gets_each_commit_once(broker: Broker, version: int) -> None:
    await broker.create("t", 3)
    first = await fetched(broker, 0, version=version)
    assert (first.error_code, first.high_watermark, rows_in(first.records)) == (E.NONE, 0, [])
    await commit(broker, 5, partitions=3)
    found = await fetched(broker, 0, version=version)
    records = rows_in(found.records)
    assert [row[2] for row in records] == [encode_key("g", "t", number) for number in range(3)]
    assert [row[3][2:10] for row in records] == [(5).to_bytes(8, "big")] * 3
    assert records[-1][0] + 1 == found.high_watermark == found.last_stable_offset
    await commit(broker, 6)
    following = await fetched(broker, found.high_watermark, version=version)
    (record,) = rows_in(following.records)
    assert record[3][2:10] == (6).to_bytes(8, "big")
    assert record[1] == record[0] >> BITS
    # The commit that was replaced has left the log.
    every = rows_in((await fetched(broker, 0, version=version)).records)
    assert [row[2][-1] for row in every] == [1, 2, 0]


async def test_a_response_of_few_bytes_has_whole_milliseconds(broker: Broker) -> None:
    await broker.create("t", 100)
    await commit(broker, 5, partitions=100)
    await commit(broker, 6, "polygenelubricants")  # of another partition
    await commit(broker, 7)
    found = await fetched(broker, 0, size=1)
    records = rows_in(found.records)
    assert len(records) == 99 and records[-1][0] + 1 < found.high_watermark
    rest = rows_in((await fetched(broker, records[-1][0] + 1, size=1)).records)
    assert [row[2] for row in rest] == [encode_key("g", "t", 0)]
    assert rows_in((await fetched(broker, rest[0][0] + 1)).records) == []


async def test_offsets_are_listed_by_time(broker: Broker) -> None:
    await broker.create("t")
    assert (await listed(broker, -1), await listed(broker, -2)) == ((-1, 0), (-1, 0))
    assert (await listed(broker, -3), await listed(broker, 0)) == ((-1, -1), (-1, -1))
    await commit(broker, 5, partitions=2)
    await commit(broker, 6)
    older, newer = rows_in((await fetched(broker, 0)).records)
    assert await listed(broker, -1) == (-1, newer[0] + 1)
    assert await listed(broker, -3) == (newer[1], newer[0])
    assert await listed(broker, 0) == (older[1], older[0])
    assert await listed(broker, older[1] + 1) == (newer[1], newer[0])
    assert await listed(broker, newer[1] + 1) == (-1, -1)


async def test_a_position_is_kept_when_the_group_is_deleted(broker: Broker) -> None:
    await broker.create("t")
    await commit(broker, 5)
    end = (await fetched(broker, 0)).high_watermark
    assert (await broker.ask(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == 0
    await begin_millisecond(broker)
    found = await fetched(broker, end)
    assert (found.error_code, found.high_watermark, rows_in(found.records)) == (E.NONE, end, [])
    for offset in (-1, (await moment(broker) + 60_000) << BITS):
        assert (await fetched(broker, offset)).error_code == E.OFFSET_OUT_OF_RANGE
    assert (await fetched(broker, 0, version=3)).error_code == E.UNSUPPORTED_VERSION


async def test_groups_are_read_once_for_all_readers(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t")
    await commit(broker, 5)
    store, asked = broker.services.store, list[str]()
    command = store.command

    async def counted(*words: Any) -> Any:
        asked.append(words[0])
        return await command(*words)

    monkeypatch.setattr(store, "command", counted)
    for _ in range(5):
        assert rows_in((await fetched(broker, 0)).records)
    assert asked.count("HGETALL") == 1


async def test_a_group_may_read_it_and_commit(broker: Broker) -> None:
    await commit(broker, 5, topic=NAME)
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (found,) = (await broker.ask(asked, 9)).groups[0].topics
    assert (found.name, found.partitions[0].committed_offset) == (NAME, 5)


async def test_it_cannot_be_changed(broker: Broker) -> None:
    topic_id = view_of(broker).topic.uuid
    for version in (9, 13):
        part = PartitionProduceData(index=0, records=packed(rows(b"v"), version))
        data = TopicProduceData(name=NAME, topic_id=topic_id, partition_data=[part])
        sent = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
        answer = await broker.ask(sent, version)
        error = answer.responses[0].partition_responses[0].error_code
        assert error in (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID)
    for state in (DeleteTopicState(name=NAME), DeleteTopicState(topic_id=topic_id)):
        answer = await broker.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000))
        error = answer.responses[0].error_code
        assert error in (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID)
    more = CreatePartitionsTopic(name=NAME, count=60, assignments=None)
    grown = CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False)
    assert (await broker.ask(grown)).results[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    cut = DeleteRecordsTopic(
        name=NAME, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)]
    )
    trimmed = await broker.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=1000))
    assert trimmed.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert not await broker.services.store.command("KEYS", f"*{NAME}*")


async def test_lists_have_it_once_a_client_asks_for_the_coordinator_of_a_group(
    broker: Broker,
) -> None:
    await broker.ask(FindCoordinatorRequest(key="id", key_type=1), 3)
    assert (await broker.ask(MetadataRequest(topics=None))).topics == []
    await broker.ask(FindCoordinatorRequest(key="g"), 3)
    for _ in range(2):
        # The second time as another broker does, which has not been asked.
        listed = (await broker.ask(MetadataRequest(topics=None))).topics
        assert [row.name for row in listed] == [NAME]
        broker.services.offsets_view._is_listed = False
    assert await broker.services.groups.registry.list_all() == []
