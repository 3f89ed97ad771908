"""Metadata, DeleteTopics, DescribeProducers: absent topics and authorized operations."""

from typing import Any
from uuid import UUID

from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from korvet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from korvet.wire.messages.describe_producers import DescribeProducersRequest
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.structs import PartitionIndexes
from tests.conformance.asking import ABSENT, TOPIC, Ask, case

NAMES = (ABSENT, "", "not legal", "..", "x" * 250)
UNKNOWN_ID = UUID(int=7)


@case("Metadata", since=8)
async def authorized_operations_of_unknown_topics(ask: Ask) -> Any:
    found = []
    for name in (TOPIC, *NAMES):
        answer = await ask(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name)],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
            )
        )
        found.append(
            [(row.name, row.error_code, row.topic_authorized_operations) for row in answer.topics]
        )
    return found


@case("Metadata", since=12)
async def authorized_operations_of_an_unknown_topic_id(ask: Ask) -> Any:
    answer = await ask(
        MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=UNKNOWN_ID)],
            include_topic_authorized_operations=True,
        )
    )
    return [(row.name, row.error_code, row.topic_authorized_operations) for row in answer.topics]


@case("DescribeProducers")
async def producers_of_unknown_partitions(ask: Ask) -> Any:
    return [
        await ask(
            DescribeProducersRequest(topics=[PartitionIndexes(name=name, partition_indexes=[0])])
        )
        for name in NAMES
    ] + [
        await ask(
            DescribeProducersRequest(
                topics=[PartitionIndexes(name=TOPIC, partition_indexes=[7, -1])]
            )
        )
    ]


@case("DeleteTopics", since=6)
async def a_topic_deleted_by_name_and_by_id(ask: Ask) -> Any:
    name = f"deleted-{ask.version}"
    made = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    await ask(CreateTopicsRequest(topics=[made]), 7)
    topic_id = await ask.topic_id(name)
    by_name, by_id = DeleteTopicState(name=name), DeleteTopicState(name=None, topic_id=topic_id)
    return [
        await ask(DeleteTopicsRequest(topics=rows, timeout_ms=5000))
        for rows in (
            [by_name, by_id],
            [by_id, by_name],
            [DeleteTopicState(name=name, topic_id=topic_id)],
            [by_id],
            [by_id],
            [by_name],
        )
    ]
