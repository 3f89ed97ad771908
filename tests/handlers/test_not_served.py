"""Check that each API responds, and that omitted features get the responses of Kafka 4.3."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest

from korvet.apis import TABLE, Api
from korvet.base.errors import ErrorCode as E
from korvet.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from korvet.wire.messages.api_versions import ApiVersionsRequest
from korvet.wire.messages.create_acls import AclCreation, CreateAclsRequest
from korvet.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from korvet.wire.messages.describe_acls import DescribeAclsRequest
from korvet.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from korvet.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from korvet.wire.messages.elect_leaders import ElectLeadersRequest
from korvet.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest
from korvet.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from korvet.wire.structs import TopicPartitions
from tests.support.connected_broker import Broker
from tests.wire.values import a_message

ANY: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
RULE = AclCreation(
    resource_type=2,
    resource_name="t",
    principal="User:me",
    host="*",
    operation=3,
    permission_type=3,
)


@pytest.mark.parametrize("version", range(4))
async def test_there_is_no_authorizer(broker: Broker, version: int) -> None:
    answer = await broker.ask(DescribeAclsRequest(**ANY), version)
    assert (answer.error_code, answer.resources) == (E.SECURITY_DISABLED, [])
    answer = await broker.ask(CreateAclsRequest(creations=[RULE, RULE]), version)
    assert [row.error_code for row in answer.results] == [E.SECURITY_DISABLED] * 2
    answer = await broker.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY)]), version)
    assert [row.error_code for row in answer.filter_results] == [E.SECURITY_DISABLED]


@pytest.mark.parametrize("version", range(2))
async def test_authentication_is_refused_if_it_is_off(broker: Broker, version: int) -> None:
    answer = await broker.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (answer.error_code, answer.mechanisms) == (E.ILLEGAL_SASL_STATE, [])


async def test_no_user_has_credentials(broker: Broker) -> None:
    async def asked(*names: str) -> list[tuple[str, E]]:
        users = [UserName(name=name) for name in names] or None
        answer = await broker.ask(DescribeUserScramCredentialsRequest(users=users))
        assert answer.error_code == E.NONE
        return [(row.user, E(row.error_code)) for row in answer.results]

    assert await asked() == []
    assert await asked("bob", "eve", "eve") == [
        ("bob", E.RESOURCE_NOT_FOUND),
        ("eve", E.DUPLICATE_RESOURCE),
    ]


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([], E.NONE),
        ([("user", 2, None)], E.NONE),
        ([("user", 0, "bob"), ("client-id", 1, None)], E.NONE),
        ([("user", 0, None)], E.INVALID_REQUEST),
        ([("user", 1, "bob")], E.INVALID_REQUEST),
        ([("user", 2, "")], E.INVALID_REQUEST),
        ([("user", 0, None), ("zzz", 2, None)], E.INVALID_REQUEST),
        ([("", 2, None)], E.INVALID_REQUEST),
        ([("zzz", 2, None)], E.UNSUPPORTED_VERSION),
        ([("zzz", 9, None)], E.UNSUPPORTED_VERSION),
        ([("user", 9, None)], E.INVALID_REQUEST),
        ([("user", 2, None), ("user", 2, None)], E.INVALID_REQUEST),
        ([("user", 2, None), ("ip", 2, None)], E.INVALID_REQUEST),
    ],
)
async def test_a_filter_of_quotas_is_checked(
    broker: Broker, components: list[tuple[str, int, str | None]], error: E
) -> None:
    rows = [
        ComponentData(entity_type=kind, match_type=how, match=name)
        for kind, how, name in components
    ]
    answer = await broker.ask(DescribeClientQuotasRequest(components=rows, strict=True))
    assert E(answer.error_code) is error
    assert answer.entries == ([] if error is E.NONE else None)


@pytest.mark.parametrize("version", range(3))
async def test_no_leader_needs_to_be_elected(broker: Broker, version: int) -> None:
    await broker.create("t", 1)
    asked = [
        TopicPartitions(topic="t", partitions=[0, 99]),
        TopicPartitions(topic="absent", partitions=[0]),
    ]
    answer = await broker.ask(ElectLeadersRequest(topic_partitions=asked), version)
    assert answer.error_code == E.NONE
    assert [
        (row.topic, one.partition_id, E(one.error_code))
        for row in answer.replica_election_results
        for one in row.partition_result
    ] == [
        ("t", 0, E.ELECTION_NOT_NEEDED),
        ("t", 99, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("absent", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    answer = await broker.ask(ElectLeadersRequest(topic_partitions=None), version)
    (row,) = answer.replica_election_results
    assert (answer.error_code, row.topic, row.partition_result) == (E.NONE, "t", [])


async def test_an_election_of_an_unknown_type_is_refused(broker: Broker) -> None:
    await broker.create("t", 1)
    asked = [TopicPartitions(topic="t", partitions=[0])]
    answer = await broker.ask(ElectLeadersRequest(election_type=9, topic_partitions=asked))
    assert answer.error_code == E.INVALID_REQUEST
    one = answer.replica_election_results[0].partition_result[0]
    assert one.error_code == E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "number", "replicas", "error"),
    [
        ("t", 0, [7], E.NONE),
        ("t", 0, None, E.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, [9], E.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [7, 7], E.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [], E.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [8], E.INVALID_REPLICA_ASSIGNMENT),  # registered, but nothing is moved
        ("t", 99, [7], E.UNKNOWN_TOPIC_OR_PARTITION),
        ("absent", 0, [7], E.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_partitions_stay_where_they_are(
    broker: Broker, name: str, number: int, replicas: list[int] | None, error: E
) -> None:
    await broker.create("t", 1)
    await broker.second()
    row = ReassignablePartition(partition_index=number, replicas=replicas)
    topic = ReassignableTopic(name=name, partitions=[row])
    answer = await broker.ask(AlterPartitionReassignmentsRequest(topics=[topic]))
    assert answer.error_code == E.NONE
    assert E(answer.responses[0].partitions[0].error_code) is error
    answer = await broker.ask(ListPartitionReassignmentsRequest())
    assert (answer.error_code, answer.topics) == (E.NONE, [])


@pytest.mark.parametrize("version", range(3))
async def test_features_cannot_be_changed(broker: Broker, version: int) -> None:
    same = FeatureUpdateKey(feature="group.version", max_version_level=1)
    other = FeatureUpdateKey(feature="transaction.version", max_version_level=1)
    answer = await broker.ask(UpdateFeaturesRequest(feature_updates=[other, same]), version)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "one of them had an error: transaction.version cannot be set to 1: " in (
        answer.error_message
    )
    assert len(answer.results) == (2 if version < 2 else 0)
    answer = await broker.ask(UpdateFeaturesRequest(feature_updates=[same]), version)
    assert answer.error_code == E.NONE
    assert [row.error_code for row in answer.results] == ([E.NONE] if version < 2 else [])
    answer = await broker.ask(UpdateFeaturesRequest(feature_updates=[]), version)
    assert answer.error_code == E.NONE


OF_4_3 = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "kraft.version": 1,
    "metadata.version": 30,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
"""The request of `kafka-features.sh upgrade --release-version 4.3`."""


@pytest.mark.parametrize(
    ("levels", "refused"),
    [
        (OF_4_3, ""),
        ({"metadata.version": 30}, ""),
        ({"kraft.version": 1}, ""),
        ({**OF_4_3, "metadata.version": 21}, "metadata.version cannot be set to 21: "),
        ({"share.version": 1}, ""),
        ({"share.version": 0}, "share.version cannot be set to 0: "),
        ({"streams.version": 1, "group.version": 1}, ""),
        ({"streams.version": 0}, "streams.version cannot be set to 0: "),
        ({"foo.version": 1}, "foo.version cannot be set to 1: "),
    ],
    ids=lambda given: (
        "+".join(f"{name}={level}" for name, level in given.items())[:60]
        if isinstance(given, dict)
        else None
    ),
)
async def test_an_upgrade_to_a_release_finds_nothing_to_do(
    broker: Broker, levels: dict[str, int], refused: str
) -> None:
    rows = [
        FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels.items()
    ]
    answer = await broker.ask(UpdateFeaturesRequest(feature_updates=rows))
    assert E(answer.error_code) is (E.INVALID_UPDATE_VERSION if refused else E.NONE)
    assert refused in (answer.error_message or "")


async def test_an_unknown_upgrade_type_of_a_feature_is_refused(broker: Broker) -> None:
    row = FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=9)
    answer = await broker.ask(UpdateFeaturesRequest(feature_updates=[row]))
    assert E(answer.error_code) is E.INVALID_UPDATE_VERSION


@pytest.mark.parametrize("version", range(6))
async def test_the_table_is_what_is_claimed(broker: Broker, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = await broker.ask(request, version)
    assert answer.error_code == E.NONE
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [
        (row.key, *row.versions) for row in broker.services.apis
    ]


@pytest.mark.parametrize("name", ["", "a b", "-a", "a\n"])
async def test_a_software_name_that_cannot_be_is_refused(broker: Broker, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    answer = await broker.ask(request)
    assert answer.error_code == E.INVALID_REQUEST


async def test_a_client_that_means_another_broker_of_the_cluster_is_served(broker: Broker) -> None:
    # Kafka refuses the client: its brokers each serve different partitions.
    named = {"client_software_name": "a", "client_software_version": "1"}
    cluster_id = broker.services.registration.cluster_id
    answer = await broker.ask(ApiVersionsRequest(**named, cluster_id=cluster_id, node_id=77))
    assert answer.error_code == E.NONE and answer.api_keys


VERSIONS = [
    (api, version) for api in TABLE for version in range(api.versions[0], api.versions[1] + 1)
]
WAITS = {"max_wait_ms": 0, "timeout_ms": 1, "rebalance_timeout_ms": 1, "session_timeout_ms": 6000}


NUMBERS = {"partition", "partition_index", "partitions", "partition_indexes"}


def near(value: Any, random: Random, name: str = "") -> Any:
    """Return the value with partitions, topic ids and offsets that may exist."""
    if isinstance(value, list):
        return [near(item, random, name) for item in value]
    if isinstance(value, msgspec.Struct):
        fields = {key: near(getattr(value, key), random, key) for key in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, int) and not isinstance(value, bool):
        if name in NUMBERS:
            return random.randrange(3)
        if "offset" in name or "epoch" in name or "generation" in name:
            return random.choice((-2, -1, 0, 1, 5, value))
        if name.endswith("type"):
            return random.choice((0, 1, 2, 4, 8, 32, value & 127))
    return value


def patient(request: Any) -> Any:
    """Return the request without a wait."""
    there = {field for field in WAITS if field in request.__struct_fields__}
    return msgspec.structs.replace(request, **{field: WAITS[field] for field in there})


@pytest.mark.parametrize(
    ("api", "version"), VERSIONS, ids=lambda value: getattr(value, "name", str(value))
)
async def test_any_request_gets_a_response(broker: Broker, api: Api, version: int) -> None:
    random = Random(f"{api.name} {version}")
    for name in ("a", "orders"):
        await broker.create(name, 2)
    for _ in range(12):
        request = patient(near(a_message(api.request, version, random), random))
        async with asyncio.timeout(5):
            await broker.ask(request, version)
