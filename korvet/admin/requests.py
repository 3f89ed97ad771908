"""The requests of admin tools, as the commands and the console make them, and values in responses.

They are what Kafka's own tools send: an Apache Kafka takes them too.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from korvet.admin.config_edits import DELETE, SET, ConfigResourceType
from korvet.security.acl import Operation, PatternType, Permission, ResourceType, Rule
from korvet.security.credentials import Mechanism, SaltedPassword
from korvet.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from korvet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from korvet.wire.messages.create_acls import AclCreation, CreateAclsRequest
from korvet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from korvet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from korvet.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from korvet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from korvet.wire.messages.describe_acls import DescribeAclsRequest
from korvet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from korvet.wire.schema import ZERO_UUID

TIMEOUT_MS = 30_000

# Topics and records.


def create_topic(
    name: str,
    partitions: int,
    configs: Mapping[str, str | None],
    replication_factor: int = -1,
    *,
    validate_only: bool = False,
) -> CreateTopicsRequest:
    """Return the request that creates a topic."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=text) for key, text in configs.items()],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only)


def add_partitions(
    name: str, count: int, *, validate_only: bool = False
) -> CreatePartitionsRequest:
    """Return the request that raises a topic's number of partitions to `count`."""
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(
        topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only
    )


def delete_topic(name: str, topic_id: UUID = ZERO_UUID) -> DeleteTopicsRequest:
    """Return the request that deletes a topic: the one with that id, if there is an id."""
    state = DeleteTopicState(name=name if topic_id == ZERO_UUID else None, topic_id=topic_id)
    return DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=TIMEOUT_MS)


def delete_records(name: str, partition: int, before: int) -> DeleteRecordsRequest:
    """Return the request that deletes a partition's records below an offset."""
    row = DeleteRecordsPartition(partition_index=partition, offset=before)
    topic = DeleteRecordsTopic(name=name, partitions=[row])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


# Configs.


def describe_configs(
    kind: ConfigResourceType,
    names: Iterable[str],
    configs: list[str] | None = None,
    *,
    documentation: bool = False,
) -> DescribeConfigsRequest:
    """Return the request for these configs, by default all, of resources of a type."""
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=configs)
        for name in names
    ]
    return DescribeConfigsRequest(resources=resources, include_documentation=documentation)


def alter_configs(
    kind: ConfigResourceType,
    name: str,
    changes: Iterable[tuple[str, str | None]],
    *,
    validate_only: bool = False,
) -> IncrementalAlterConfigsRequest:
    """Return the request that sets configs of a resource, and returns those of None to defaults."""
    configs = [
        AlterableConfig(name=key, value=text, config_operation=DELETE if text is None else SET)
        for key, text in changes
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


# ACL rules.


def find_rules() -> DescribeAclsRequest:
    """Return the request for all ACL rules."""
    return DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )


def rules_in(response: Any) -> list[Rule]:
    """Return the ACL rules of a response."""
    return [
        Rule(
            ResourceType(resource.resource_type),
            PatternType(resource.pattern_type),
            resource.resource_name,
            row.principal,
            row.host,
            Operation(row.operation),
            Permission(row.permission_type),
        )
        for resource in response.resources
        for row in resource.acls
    ]


def create_rules(rules: Iterable[Rule]) -> CreateAclsRequest:
    """Return the request that adds ACL rules."""
    rows = [
        AclCreation(
            resource_type=rule.resource_type,
            resource_name=rule.name,
            resource_pattern_type=rule.pattern_type,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in rules
    ]
    return CreateAclsRequest(creations=rows)


def delete_rules(rules: Iterable[Rule]) -> DeleteAclsRequest:
    """Return the request that deletes these ACL rules."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=rule.resource_type,
            resource_name_filter=rule.name,
            pattern_type_filter=rule.pattern_type,
            principal_filter=rule.principal,
            host_filter=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in rules
    ]
    return DeleteAclsRequest(filters=filters)


# Users and quotas.


def set_credential(
    user: str, mechanism: Mechanism, password: SaltedPassword | None
) -> AlterUserScramCredentialsRequest:
    """Return the request that sets a user's credential, or deletes it for None."""
    if password is None:
        row = ScramCredentialDeletion(name=user, mechanism=mechanism)
        return AlterUserScramCredentialsRequest(deletions=[row], upsertions=[])
    new = ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=password.iterations,
        salt=password.salt,
        salted_password=password.salted,
    )
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=[new])


def alter_quotas(
    entity: Mapping[str, str | None],
    quotas: Iterable[tuple[str, float | None]],
    *,
    validate_only: bool = False,
) -> AlterClientQuotasRequest:
    """Return the request that sets quotas of an entity, and removes those of None."""
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas]
    entry = EntryData(entity=parts, ops=ops)
    return AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
