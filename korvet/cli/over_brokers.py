"""Topics, groups, ACL rules and users by Kafka's requests, for commands that have brokers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from korvet.admin.config_edits import ConfigResourceType
from korvet.base.errors import ErrorCode
from korvet.cli import table_output
from korvet.cli.broker_log import BrokerLog
from korvet.cli.kafka_client import check
from korvet.cli.kafka_requests import Requests
from korvet.config.setting import Source
from korvet.security.acl import Operation, PatternType, Permission, ResourceType, Rule
from korvet.security.credentials import Mechanism, SaltedPassword
from korvet.security.users import ABSENT, PRESENT
from korvet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from korvet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from korvet.wire.messages.create_acls import AclCreation, CreateAclsRequest
from korvet.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from korvet.wire.messages.describe_acls import DescribeAclsRequest
from korvet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from korvet.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from korvet.wire.messages.list_groups import ListGroupsRequest
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.messages.share_group_describe import ShareGroupDescribeRequest
from korvet.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from korvet.wire.schema import Message
from korvet.wire.structs import TopicPartitions

Description = tuple[list[table_output.Row], tuple[str, ...], list[table_output.Row]]
"""A topic's configs, the columns of its partitions, and these."""
Changes = Mapping[Mechanism, SaltedPassword | None]
"""The new passwords of a user; None deletes one."""
_TIMEOUT_MS = 30_000
_SHAPE = ("storage.format", "offset.mode")
_AT_ONCE = 100
"""Topics or groups that one request describes."""


async def describe_topic(requests: Requests, name: str) -> Description:
    """Return the configs of a topic, and the offsets and bytes of its partitions."""
    log = BrokerLog(requests)
    topic, sizes = await log.topic(name), dict[int, int]()
    rows: list[table_output.Row] = [("id", topic.id.hex, "")]
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=name, configuration_keys=None
    )
    (found,) = (await requests.call(DescribeConfigsRequest(resources=[resource]))).results
    check(found)
    known = {source.value: source.name.lower() for source in Source}
    rows += [(row.name, row.value, known.get(row.config_source, "")) for row in found.configs]
    asked = [TopicPartitions(topic=name, partitions=sorted(topic.leaders))]
    for broker in requests.brokers:
        answer = await requests.call(DescribeLogDirsRequest(topics=asked), broker)
        for part in (part for row in answer.results for of in row.topics for part in of.partitions):
            sizes[part.partition_index] = part.partition_size
    parts: list[table_output.Row] = [
        (*ends, sizes.get(ends.partition)) for ends in await log.offsets(name)
    ]
    return rows, ("partition", "first", "next", "bytes"), parts


async def list_topics(requests: Requests) -> list[table_output.Row]:
    """Return a row of each topic: its partitions, format, offset mode, records and bytes.

    Brokers return no number of records, and an Apache Kafka neither format nor offset mode.
    """
    answer = await requests.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    counts = {row.name: len(row.partitions) for row in answer.topics if not row.is_internal}
    sizes = dict.fromkeys(counts, 0)
    for broker in requests.brokers:
        found = await requests.call(DescribeLogDirsRequest(topics=None), broker)
        for topic in (topic for row in found.results for topic in row.topics):
            size = sum(part.partition_size for part in topic.partitions)
            # The brokers of one Redis have the same bytes; those of Kafka have replicas.
            sizes[topic.name] = max(sizes.get(topic.name, 0), size)
    names = sorted(counts)
    shapes = await shapes_of(requests, names)
    return [(name, counts[name], *shapes[name], None, sizes[name]) for name in names]


async def shapes_of(requests: Requests, names: Sequence[str]) -> dict[str, tuple[object, ...]]:
    """Return the format and the offset mode of each topic."""
    shapes: dict[str, tuple[object, ...]] = {}
    for at in range(0, len(names), _AT_ONCE):
        resources = [
            DescribeConfigsResource(
                resource_type=ConfigResourceType.TOPIC,
                resource_name=name,
                configuration_keys=list(_SHAPE),
            )
            for name in names[at : at + _AT_ONCE]
        ]
        found = await requests.call(DescribeConfigsRequest(resources=resources))
        for row in found.results:
            values = {config.name: config.value for config in row.configs}
            shapes[row.resource_name] = tuple(values.get(key) for key in _SHAPE)
    return shapes


async def list_groups(requests: Requests) -> list[table_output.Row]:
    """Return a row of each group: its type, state, protocol and members."""
    rows: dict[str, table_output.Row] = {}
    for broker in requests.brokers:
        answer = await requests.call(ListGroupsRequest(), broker)
        check(answer)
        by_type: dict[str, list[Any]] = {}
        for group in answer.groups:
            by_type.setdefault(group.group_type.lower() or "classic", []).append(group)
        for kind, groups in by_type.items():
            for at in range(0, len(groups), _AT_ONCE):
                some = groups[at : at + _AT_ONCE]
                found = await requests.call(
                    describe_request(kind, [row.group_id for row in some]), broker
                )
                members = {row.group_id: len(row.members) for row in found.groups}
                for row in some:
                    protocol = row.protocol_type or None
                    count = members.get(row.group_id, 0)
                    rows[row.group_id] = (row.group_id, kind, row.group_state, protocol, count)
    return [rows[name] for name in sorted(rows)]


def describe_request(kind: str, names: list[str]) -> Message:
    if kind == "classic":
        return DescribeGroupsRequest(groups=names)
    request = {
        "consumer": ConsumerGroupDescribeRequest,
        "share": ShareGroupDescribeRequest,
        "streams": StreamsGroupDescribeRequest,
    }[kind]
    return request(group_ids=names, include_authorized_operations=False)


async def list_rules(requests: Requests) -> list[Rule]:
    """Return the ACL rules."""
    answer = await requests.call(
        DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
    )
    check(answer)
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
        for resource in answer.resources
        for row in resource.acls
    ]


async def add_rules(requests: Requests, rules: Sequence[Rule]) -> int:
    """Add ACL rules; return how many did not exist."""
    known = set(await list_rules(requests))
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
    for row in (await requests.call(CreateAclsRequest(creations=rows))).results:
        check(row)
    return len(set(rules) - known)


async def delete_rules(requests: Requests, rules: Sequence[Rule]) -> int:
    """Delete ACL rules; return how many existed."""
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
    found = (await requests.call(DeleteAclsRequest(filters=filters))).filter_results
    for each in (row for result in found for row in (result, *result.matching_acls)):
        check(each)
    return sum(len(result.matching_acls) for result in found)


class BrokerUsers(NamedTuple):
    """The users of brokers. Unlike in Redis, a condition is checked before the change."""

    requests: Requests

    async def list(self) -> dict[str, dict[Mechanism, int]]:
        """Return the iterations of every user's credentials."""
        return await self._describe(None)

    async def describe(self, names: Sequence[str]) -> dict[str, dict[Mechanism, int]]:
        """Return the iterations of these users' credentials; none of an unknown user."""
        return {name: {} for name in names} | await self._describe(names)

    async def change(self, name: str, changes: Changes, condition: str) -> ErrorCode:
        """Set and delete credentials of a user, unless the condition does not hold."""
        known = (await self.describe([name]))[name]
        deleted = [each for each, salted in changes.items() if salted is None and each in known]
        if condition == ABSENT and known:
            return ErrorCode.DUPLICATE_RESOURCE
        if condition == PRESENT and (not known or not (deleted or any(changes.values()))):
            return ErrorCode.RESOURCE_NOT_FOUND
        for each, new in changes.items():  # a request may change a user once
            deletions = [ScramCredentialDeletion(name=name, mechanism=each)]
            upsertions = []
            if new is not None:
                deletions = []
                upsertions = [
                    ScramCredentialUpsertion(
                        name=name,
                        mechanism=each,
                        iterations=new.iterations,
                        salt=new.salt,
                        salted_password=new.salted,
                    )
                ]
            elif each not in deleted:
                continue
            request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
            check((await self.requests.call(request)).results[0])
        return ErrorCode.NONE

    async def _describe(self, names: Sequence[str] | None) -> dict[str, dict[Mechanism, int]]:
        users = None if names is None else [UserName(name=name) for name in names]
        answer = await self.requests.call(DescribeUserScramCredentialsRequest(users=users))
        check(answer)
        found = {}
        for row in answer.results:
            if row.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                check(row)
                rows = row.credential_infos
                found[row.user] = {Mechanism(each.mechanism): each.iterations for each in rows}
        return dict(sorted(found.items()))
