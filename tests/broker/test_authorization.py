"""Check the rights that each API needs: a client without them gets Kafka's errors."""

import itertools
import logging
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

from korvet import apis
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.broker import authorization
from korvet.broker.acl_table import NEEDS
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.context import Context, Services
from korvet.security.acl import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from korvet.security.session import Principal, Session
from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.create_acls import AclCreation, CreateAclsRequest
from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from korvet.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from korvet.wire.messages.describe_acls import DescribeAclsRequest
from korvet.wire.messages.describe_cluster import DescribeClusterRequest
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from korvet.wire.messages.heartbeat import HeartbeatRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from korvet.wire.messages.share_acknowledge import AcknowledgePartition
from korvet.wire.messages.share_fetch import AcknowledgeTopic as ShareFetchTopic
from korvet.wire.messages.share_fetch import ShareFetchRequest
from korvet.wire.schema import Message, decode, encode
from tests.security.acl_rules import ANY_ACL
from tests.support.raw_client import batch
from tests.support.redis_servers import TestServer

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_namespaces = itertools.count()


def allow(
    operation: Operation, kind: ResourceType, name: str, permission: Permission = Permission.ALLOW
) -> Rule:
    return Rule(kind, PatternType.LITERAL, name, "User:alice", "*", operation, permission)


class Secured:
    """The services of a broker with an authorizer, and requests of alice and of root."""

    def __init__(self, services: Services) -> None:
        self.services = services

    async def ask(self, request: Message, version: int | None = None, user: str = "alice") -> Any:
        row = apis.BY_KEY[request.__message__.key]
        version = row.versions[1] if version is None else version
        sent = decode(type(request), encode(request, version), version)
        session = Session("127.0.0.1", principal=Principal("User", user))
        context = Context(self.services, row.key, version, "test", session)
        answer = await authorization.handle(row, sent, context)
        return answer and decode(row.response, encode(answer, version), version)

    async def grant(self, *rules: Rule) -> None:
        await self.services.authorizer.create(rules)

    async def name_topics(self, *names: str, user: str = "root") -> dict[str, int]:
        topics = [MetadataRequestTopic(name=name) for name in names]
        answer = await self.ask(MetadataRequest(topics=topics), 9, user)
        return {row.name: row.error_code for row in answer.topics}


@pytest.fixture
async def secured(valkey_server: TestServer) -> AsyncIterator[Secured]:
    """Node 7 on an empty namespace, with the topics `a` and `b`."""
    options = {"redis": valkey_server.url, "namespace": f"acl{next(_namespaces)}", "node-id": "7"}
    sets = ["authorizer.class.name=korvet", "super.users=User:root"]
    config = load({**options, "advertise": "me:9092"}, sets=sets, environ={})
    async with connected(config) as services:
        await services.registration.heartbeat()
        await services.topics.refresh()
        await services.authorizer.refresh()
        broker = Secured(services)
        assert await broker.name_topics("a", "b") == {"a": 0, "b": 0}
        yield broker


def test_every_api_has_its_row_in_the_table_of_needs() -> None:
    assert {api.name for api in apis.TABLE} == set(NEEDS)


def test_every_field_of_the_table_is_one_of_its_request() -> None:
    for api in apis.TABLE:
        for need in NEEDS[api.name]:
            field = getattr(need, "field", "")
            assert not field or field in api.request.__struct_fields__, (api.name, field)


def fetch(*names: str) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic=name, partitions=[part]) for name in names]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)


def produce(name: str, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch([b"v"]))]
    topics = [TopicProduceData(name=name, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


async def test_a_denied_topic_looks_alike_whether_it_exists_or_not(secured: Secured) -> None:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await secured.name_topics("a", "missing", user="alice") == {
        "a": denied,
        "missing": denied,
    }
    listed = await secured.ask(MetadataRequest(topics=None))
    assert listed.topics == []


async def test_a_share_group_and_its_topics_need_read(secured: Secured) -> None:
    topics = [await secured.services.topics.get(name) for name in "ab"]
    places = [AcknowledgePartition(partition_index=0, acknowledgement_batches=[])]
    request = ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=1,
        max_records=9,
        batch_size=9,
        topics=[ShareFetchTopic(topic_id=one.uuid, partitions=places) for one in topics if one],
    )
    assert (await secured.ask(request)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    await secured.grant(allow(Operation.READ, GROUP, "g"), allow(Operation.READ, TOPIC, "a"))
    answer = await secured.ask(request)
    codes = {row.topic_id: row.partitions[0].error_code for row in answer.responses}
    assert [codes[one.uuid] for one in topics if one] == [0, 29] and answer.error_code == 0


async def test_rows_are_denied_one_by_one(secured: Secured) -> None:
    await secured.grant(allow(Operation.READ, TOPIC, "a"))
    answer = await secured.ask(fetch("a", "b", "missing"), 12)
    codes = {row.topic: row.partitions[0].error_code for row in answer.responses}
    assert codes == {"a": 0, "b": 29, "missing": 29} and answer.error_code == 0
    ask = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name=name, partitions=[ask]) for name in ("b", "a")]
    offsets = await secured.ask(ListOffsetsRequest(replica_id=-1, topics=topics))
    assert {row.name: row.partitions[0].error_code for row in offsets.topics} == {"a": 0, "b": 29}
    assert [row.name for row in (await secured.ask(MetadataRequest(topics=None))).topics] == ["a"]


async def test_ids_of_topics_are_checked_by_their_names(secured: Secured) -> None:
    await secured.grant(allow(Operation.READ, TOPIC, "a"))
    found = {name: await secured.services.topics.get(name) for name in ("a", "b")}
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic_id=row.uuid, partitions=[part]) for row in found.values() if row]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
    for _ in range(2):  # with the table of topics fresh, and outdated
        answer = await secured.ask(request, 13)
        assert sorted(row.partitions[0].error_code for row in answer.responses) == [0, 29]
        secured.services.topics.invalidate()


@pytest.mark.parametrize("version", [14, 15, 18])
async def test_fetches_of_followers_need_cluster_action(secured: Secured, version: int) -> None:
    await secured.grant(allow(Operation.READ, TOPIC, "a"))
    topic = await secured.services.topics.get("a")
    assert topic is not None
    request = replace(
        fetch("a"),
        topics=[replace(row, topic_id=topic.uuid) for row in fetch("a").topics],
        replica_id=8 if version < 15 else -1,
        replica_state=ReplicaState(replica_id=8 if version >= 15 else -1),
    )

    async def code() -> int:
        answer = await secured.ask(request, version)
        return int(answer.responses[0].partitions[0].error_code)

    assert await code() == 29
    await secured.grant(allow(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    assert await code() == 0


async def test_a_pattern_matches_topics_only_that_the_member_may_describe(
    secured: Secured,
) -> None:
    topics = {name: await secured.services.topics.get(name) for name in ("a", "b")}
    names = {topic.uuid: name for name, topic in topics.items() if topic is not None}
    await secured.grant(allow(Operation.READ, GROUP, "g"), allow(Operation.READ, TOPIC, "a"))

    async def assigned(epoch: int) -> set[str]:
        join = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex=".*",
            topic_partitions=[],
        )
        answer = await secured.ask(join, 1)
        assert answer.error_code == 0, answer.error_message
        return {names[row.topic_id] for row in answer.assignment.topic_partitions}

    assert await assigned(0) == {"a"}
    await secured.grant(allow(Operation.DESCRIBE, TOPIC, "b"))
    assert await assigned(0) == {"a", "b"}


async def test_produce_needs_write_and_create_for_a_missing_topic(secured: Secured) -> None:
    async def code(name: str) -> int:
        answer = await secured.ask(produce(name), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    assert await code("a") == 29
    await secured.grant(allow(Operation.WRITE, TOPIC, "a"), allow(Operation.WRITE, TOPIC, "new"))
    assert (await code("a"), await code("new")) == (0, 3)
    await secured.grant(allow(Operation.CREATE, TOPIC, "new"))
    assert await code("new") == 0
    with pytest.raises(CloseWithoutResponse):
        await secured.ask(produce("b", acks=0), 9)


async def test_needs_of_the_whole_request_are_checked_first(secured: Secured) -> None:
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    init = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000, producer_epoch=-1
    )
    assert (await secured.ask(beat)).error_code == 30
    assert (await secured.ask(init)).error_code == 31
    named = InitProducerIdRequest(
        transactional_id="t", transaction_timeout_ms=1000, producer_epoch=-1
    )
    assert (await secured.ask(named)).error_code == 53
    await secured.grant(
        allow(Operation.READ, GROUP, "g"),
        Rule(TOPIC, PatternType.PREFIXED, "x", "User:*", "*", Operation.WRITE, Permission.ALLOW),
    )
    assert (await secured.ask(beat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await secured.ask(init)).error_code == 0
    await secured.grant(allow(Operation.WRITE, TOPIC, "*", Permission.DENY))
    assert (await secured.ask(init)).error_code == 31


async def test_rules_are_created_described_and_deleted(secured: Secured) -> None:
    def creation(**changes: Any) -> AclCreation:
        fields: dict[str, Any] = {
            "resource_type": 2,
            "resource_name": "a",
            "principal": "User:bob",
            "host": "10.0.0.0/8",
            "operation": 3,
            "permission_type": 3,
        }
        return AclCreation(**{**fields, **changes})

    wrong = ({"resource_name": ""}, {"principal": "bob"}, {"host": "10.0.0.0/99"}, {"operation": 1})
    request = CreateAclsRequest(creations=[creation(), *(creation(**one) for one in wrong)])
    assert {row.error_code for row in (await secured.ask(request)).results} == {31}
    answer = await secured.ask(request, user="root")
    assert [row.error_code for row in answer.results] == [0, 42, 42, 42, 42]
    described = await secured.ask(DescribeAclsRequest(**ANY_ACL), user="root")
    (resource,) = described.resources
    assert (resource.resource_name, resource.acls[0].host) == ("a", "10.0.0.0/8")
    covering = {**ANY_ACL, "pattern_type_filter": 2, "resource_name_filter": "b"}
    assert (await secured.ask(DescribeAclsRequest(**covering), user="root")).resources == []
    gone = DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY_ACL)])
    deleted = await secured.ask(gone, user="root")
    assert [row.principal for row in deleted.filter_results[0].matching_acls] == ["User:bob"]
    assert (await secured.ask(DescribeAclsRequest(**ANY_ACL), user="root")).resources == []


async def test_authorized_operations_are_those_of_the_client(secured: Secured) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert (await secured.ask(request)).cluster_authorized_operations == 0
    await secured.grant(allow(Operation.ALTER, CLUSTER, CLUSTER_NAME))
    bits = (await secured.ask(request)).cluster_authorized_operations
    assert bits == 1 << Operation.ALTER | 1 << Operation.DESCRIBE


async def test_unreadable_rules_refuse_every_request(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from korvet.security import authorizer as module

    later = monotonic() + module.TRUST_S
    monkeypatch.setattr(module, "monotonic", lambda: later)
    with pytest.raises(module.RulesUnreadable):
        await secured.ask(fetch("a"), 12, user="root")
    with pytest.raises(CloseWithoutResponse):
        await secured.ask(MetadataRequest(topics=None), user="root")


async def test_denials_are_audited_once_a_second(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "korvet"):
        for _ in range(3):
            await secured.ask(fetch("a"), 12)
        await secured.ask(fetch("a"), 12, user="root")
    (line,) = [one for one in caplog.records if one.name.endswith("audit")]
    fields = line.__dict__["fields"]
    assert line.getMessage() == "request denied"
    assert (fields["principal"], fields["operation"], fields["resource"]) == (
        "User:alice",
        "READ",
        "a",
    )
    assert (fields["client_id"], fields["address"]) == ("test", "127.0.0.1")
    assert fields["api"] == "Fetch"


async def test_an_allowed_request_is_audited_by_the_right_that_sufficed(
    secured: Secured, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = secured.services.audit
    monkeypatch.setattr(audit, "takes_allowed", True)
    monkeypatch.setattr(audit, "_logs_allowed", True)
    await secured.grant(
        allow(Operation.WRITE, TOPIC, "a"), allow(Operation.CREATE, CLUSTER, CLUSTER_NAME)
    )
    init = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000, producer_epoch=-1
    )
    topic = CreatableTopic(
        name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    with caplog.at_level(logging.INFO, "korvet"):
        assert (await secured.ask(init)).error_code == 0
        answer = await secured.ask(CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0
    rows = [one.__dict__["fields"] for one in caplog.records if one.name.endswith("audit")]
    allowed = {(row["api"], row["operation"], row["resource_type"]) for row in rows}
    assert allowed == {("InitProducerId", "WRITE", "TOPIC"), ("CreateTopics", "CREATE", "CLUSTER")}
