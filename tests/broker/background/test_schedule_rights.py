"""Scheduling and cancelling a record need WRITE on the topic, as any produce."""

from korvet.base.errors import ErrorCode
from korvet.security.acl import Operation, ResourceType
from korvet.wire import batch_builder
from korvet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from korvet.wire.records import Headers
from tests.broker.test_authorization import Secured, allow, secured

__all__ = ["secured"]

ID = ("korvet-schedule-id", b"1")


async def create(secured: Secured) -> None:
    config = CreatableTopicConfig(name="delivery.schedule.enable", value="true")
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[config]
    )
    answer = await secured.ask(CreateTopicsRequest(topics=[topic]), user="root")
    assert answer.topics[0].error_code == ErrorCode.NONE


async def produce(secured: Secured, user: str, value: bytes | None, headers: Headers) -> int:
    data = bytes(batch_builder.build([(0, 0, b"k", value, headers)]))
    rows = [PartitionProduceData(index=0, records=data)]
    topics = [TopicProduceData(name="t", partition_data=rows)]
    answer = await secured.ask(
        ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9, user=user
    )
    return int(answer.responses[0].partition_responses[0].error_code)


async def waiting(secured: Secured) -> int:
    topic = await secured.services.topics.get("t")
    assert topic is not None
    call = secured.services.keys.partition("t", 0, topic.id).schedule_list(most=0)
    return (await secured.services.store.run(call)).records


async def test_scheduling_and_cancelling_need_write(secured: Secured) -> None:
    await create(secured)
    later: Headers = [("korvet-delay-ms", b"60000"), ID]
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await secured.grant(allow(Operation.READ, ResourceType.TOPIC, "t"))
    assert await produce(secured, "alice", b"v", later) == denied
    assert await waiting(secured) == 0
    assert await produce(secured, "root", b"v", later) == ErrorCode.NONE
    assert await produce(secured, "alice", None, [ID]) == denied
    assert await waiting(secured) == 1
    await secured.grant(allow(Operation.WRITE, ResourceType.TOPIC, "t"))
    assert await produce(secured, "alice", None, [ID]) == ErrorCode.NONE
    assert await waiting(secured) == 0
