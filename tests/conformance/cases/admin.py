"""ApiVersions, CreatePartitions, DeleteRecords, ElectLeaders and other requests of tools."""

from typing import Any

from korvet.wire.messages.api_versions import ApiVersionsRequest
from korvet.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from korvet.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from korvet.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from korvet.wire.messages.elect_leaders import ElectLeadersRequest
from korvet.wire.messages.list_config_resources import ListConfigResourcesRequest
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from korvet.wire.structs import TopicPartitions
from tests.conformance.asking import ABSENT, COMPACTED, TOPIC, Ask, case


def growing(
    name: str, count: int, assignments: list[list[int]] | None = None, check: bool = True
) -> CreatePartitionsRequest:
    rows = None
    if assignments is not None:
        rows = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    topic = CreatePartitionsTopic(name=name, count=count, assignments=rows)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=5000, validate_only=check)


@case("ApiVersions", since=5)
async def clusters_and_brokers_that_a_client_means(ask: Ask) -> Any:
    here = (await ask(MetadataRequest(topics=[]), 12)).cluster_id
    meant = [(None, -1), (here, 1), (here, -1), (None, 1), ("other", 1), ("other", -1), ("", 1)]
    answers = []
    for software, cluster_id, node_id in [("a", *each) for each in meant] + [("", "other", 1)]:
        request = ApiVersionsRequest(
            client_software_name=software,
            client_software_version="1",
            cluster_id=cluster_id,
            node_id=node_id,
        )
        answer = await ask(request)
        # The supported APIs and features may differ between brokers.
        answers.append((answer.error_code, bool(answer.api_keys), bool(answer.finalized_features)))
    return answers


@case("CreatePartitions")
async def partitions_of_unknown_topics(ask: Ask) -> Any:
    return [await ask(growing(name, 3)) for name in (ABSENT, "", "not legal", "x" * 250, "..")]


@case("CreatePartitions")
async def partitions_that_are_no_more_than_before(ask: Ask) -> Any:
    return [await ask(growing(TOPIC, count, check=False)) for count in (2, 1, 0, -1, -(2**31))]


@case("CreatePartitions")
async def far_too_many_partitions(ask: Ask) -> Any:
    return await ask(growing(TOPIC, 2**31 - 1))


@case("CreatePartitions")
async def partitions_with_invalid_assignments(ask: Ask) -> Any:
    return [
        await ask(growing(TOPIC, 3, rows))
        for rows in ([], [[]], [[991]], [[-1]], [[991], [991]], [[1, 1]])
    ]


@case("CreatePartitions")
async def assignments_for_no_increase(ask: Ask) -> Any:
    return [await ask(growing(TOPIC, 2, [])), await ask(growing(ABSENT, 2, [[991]]))]


@case("CreatePartitions")
async def a_topic_named_twice_for_partitions(ask: Ask) -> Any:
    rows = [
        CreatePartitionsTopic(name=name, count=count, assignments=None)
        for name, count in ((TOPIC, 5), (TOPIC, 6), (ABSENT, 5), (ABSENT, 5))
    ]
    answer = await ask(CreatePartitionsRequest(topics=rows, timeout_ms=5000, validate_only=True))
    return sorted((row.name, row.error_code) for row in answer.results)


@case("CreatePartitions")
async def partitions_that_are_only_checked(ask: Ask) -> Any:
    return [await ask(growing(TOPIC, 3)), await ask(growing(TOPIC, 3))]


@case("CreatePartitions")
async def partitions_of_nothing(ask: Ask) -> Any:
    return await ask(CreatePartitionsRequest(topics=[], timeout_ms=5000, validate_only=False))


def cutting(name: str, *places: tuple[int, int]) -> DeleteRecordsRequest:
    rows = [DeleteRecordsPartition(partition_index=part, offset=offset) for part, offset in places]
    topic = DeleteRecordsTopic(name=name, partitions=rows)
    return DeleteRecordsRequest(topics=[topic], timeout_ms=5000)


@case("DeleteRecords")
async def records_of_unknown_partitions(ask: Ask) -> Any:
    return [
        await ask(cutting(ABSENT, (0, 0))),
        await ask(cutting("", (0, 0))),
        await ask(cutting("not legal", (0, 0))),
        await ask(cutting(TOPIC, (2, 0))),
        await ask(cutting(TOPIC, (-1, 0))),
        await ask(DeleteRecordsRequest(topics=[], timeout_ms=5000)),
    ]


@case("DeleteRecords")
async def records_beyond_the_ends(ask: Ask) -> Any:
    return [await ask(cutting(TOPIC, (0, offset))) for offset in (2**62, -2, -(2**63))]


@case("DeleteRecords")
async def records_up_to_where_the_log_begins(ask: Ask) -> Any:
    return [await ask(cutting(TOPIC, (0, offset))) for offset in (0, -1)]


@case("DeleteRecords")
async def records_of_a_compacted_topic(ask: Ask) -> Any:
    return [
        await ask(cutting(COMPACTED, (0, -1))),
        await ask(cutting(COMPACTED, (0, 2**62))),
        await ask(cutting(COMPACTED, (5, 0))),
    ]


def electing(kind: int, *rows: tuple[str, list[int]]) -> ElectLeadersRequest:
    topics = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in rows]
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=5000)


@case("ElectLeaders")
async def leaders_that_are_elected_already(ask: Ask) -> Any:
    return await ask(electing(0, (TOPIC, [0, 1])))


@case("ElectLeaders", since=1)
async def leaders_by_an_unclean_election(ask: Ask) -> Any:
    return await ask(electing(1, (TOPIC, [0])))


@case("ElectLeaders", since=1)
async def leaders_by_an_unknown_election_type(ask: Ask) -> Any:
    return [await ask(electing(2, (TOPIC, [0]))), await ask(electing(-1, (ABSENT, [0])))]


@case("ElectLeaders")
async def leaders_of_nothing(ask: Ask) -> Any:
    return [
        await ask(electing(0, (ABSENT, [0]), (TOPIC, [7, -1]))),
        await ask(electing(0)),
        await ask(electing(0, (TOPIC, []))),
        await ask(electing(0, ("", [0]))),
    ]


@case("ElectLeaders")
async def leaders_of_everything(ask: Ask) -> Any:
    asked = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5000)
    answer = await ask(asked)
    rows = answer.replica_election_results
    return answer.error_code, sorted(
        (row.topic, len(row.partition_result)) for row in rows if not row.topic.startswith("_")
    )


@case("DescribeLogDirs")
async def directories_of_unknown_partitions(ask: Ask) -> Any:
    def asking(*rows: tuple[str, list[int]]) -> DescribeLogDirsRequest:
        topics = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in rows]
        return DescribeLogDirsRequest(topics=topics)

    return [
        await ask(asking((ABSENT, [0]))),
        await ask(asking((TOPIC, [7, -1]))),
        await ask(asking((TOPIC, [0, 7]))),
        await ask(asking((TOPIC, [0, 0]))),
        await ask(asking()),
        await ask(asking(("", [0]))),
    ]


@case("OffsetForLeaderEpoch")
async def ends_of_unknown_epochs(ask: Ask) -> Any:
    def asking(name: str, partition: int, epoch: int, current: int = -1) -> Any:
        part = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current
        )
        topic = OffsetForLeaderTopic(topic=name, partitions=[part])
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])

    return [
        await ask(asking(ABSENT, 0, 0)),
        await ask(asking(TOPIC, 7, 0)),
        await ask(asking(TOPIC, -1, 0)),
        await ask(asking(TOPIC, 1, 99)),
        await ask(asking(TOPIC, 1, -1)),
        await ask(asking(TOPIC, 1, -5)),
        await ask(asking(TOPIC, 1, 0)),
        await ask(asking("", 0, 0)),
    ]


@case("OffsetForLeaderEpoch", since=2)
async def ends_of_epochs_by_a_client_with_a_newer_epoch(ask: Ask) -> Any:
    part = OffsetForLeaderPartition(partition=1, leader_epoch=0, current_leader_epoch=99)
    topic = OffsetForLeaderTopic(topic=TOPIC, partitions=[part])
    return await ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))


@case("DescribeTopicPartitions")
async def partitions_described(ask: Ask) -> Any:
    def asking(*names: str, limit: int = 100, cursor: Cursor | None = None) -> Any:
        topics = [TopicRequest(name=name) for name in names]
        return DescribeTopicPartitionsRequest(
            topics=topics, response_partition_limit=limit, cursor=cursor
        )

    found = []
    for asked in (
        asking(ABSENT),
        asking(TOPIC, TOPIC),
        asking(TOPIC, limit=1),
        asking(TOPIC, limit=0),
        asking(TOPIC, limit=-1),
        asking(TOPIC, cursor=Cursor(topic_name=TOPIC, partition_index=1)),
        asking(TOPIC, cursor=Cursor(topic_name=TOPIC, partition_index=7)),
        asking(TOPIC, cursor=Cursor(topic_name=TOPIC, partition_index=-1)),
        asking(TOPIC, cursor=Cursor(topic_name="zzz", partition_index=0)),
        asking(TOPIC, cursor=Cursor(topic_name="a", partition_index=0)),
    ):
        answer = await ask(asked)
        rows = [
            (row.name, row.error_code, [part.partition_index for part in row.partitions])
            for row in answer.topics
        ]
        cursor = answer.next_cursor
        found.append((rows, cursor and (cursor.topic_name, cursor.partition_index)))
    return found


@case("DescribeTopicPartitions")
async def partitions_described_of_illegal_names(ask: Ask) -> Any:
    topics = [TopicRequest(name=name) for name in ("not legal", "")]
    answer = await ask(DescribeTopicPartitionsRequest(topics=topics))
    return sorted((row.name, row.error_code) for row in answer.topics)


@case("ListConfigResources", since=1)
async def resources_of_an_unknown_type(ask: Ask) -> Any:
    return [
        (await ask(ListConfigResourcesRequest(resource_types=kinds))).error_code
        for kinds in ([99], [2, 99], [0], [1], [2], [4], [8], [16], [32])
    ]
