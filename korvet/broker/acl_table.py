"""The ACL table: which operation on which resource each API requires, and the kinds of needs.

Dispatch checks the needs of this table before a handler runs; docs/security/authorization.md lists
them. A test requires a row for each API.

Rules
- `Whole` is needed for the request. `EachRow` is needed for each row of a list: rows without it are
  answered with its error, and the handler gets the others. So a handler never sees a topic that
  the client may not use, and an error is the same whether the topic exists or not.
- `InHandler` describes what only the handler can check, with `Context.allows`.
- Several `operations` are alternatives.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from korvet.admin.config_edits import ConfigResourceType
from korvet.base.errors import ErrorCode
from korvet.security.acl import CLUSTER_NAME, Operation, ResourceType
from korvet.wire.records import ATTRIBUTES_AT, HEADER_SIZE, MAGIC, MAGIC_AT, TRANSACTIONAL

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

ERROR_OF = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Whole(msgspec.Struct, frozen=True):
    """A need of the whole request; `field` names the resource, empty for the cluster.

    If the field is a list, the need holds for each of its names. `top_only`: the response of a
    denied request has the error at its top and no rows.
    """

    resource: ResourceType
    operations: tuple[Operation, ...]
    field: str = ""
    top_only: bool = False
    when: Callable[[Any], bool] = lambda request: True
    note: str = ""
    on_any_topic: bool = False
    """Whether WRITE on any topic suffices too."""
    repeated: Callable[[Any], Any] = lambda request: request
    """Returns the request of whose rows a denied response has one each."""

    @property
    def error(self) -> ErrorCode:
        return ERROR_OF[self.resource]

    def names(self, request: Any) -> Sequence[str]:
        """Return the names of the resources."""
        if not self.field:
            return (CLUSTER_NAME,)
        value = getattr(request, self.field)
        if isinstance(value, str):
            return (value,)
        return value or ()


class EachRow(msgspec.Struct, frozen=True):
    """A need of each row of the list `field`."""

    field: str
    resource: ResourceType
    operation: Operation
    or_cluster: Operation | None = None
    """The operation on the cluster that suffices too, or None."""
    note: str = ""


class EachConfig(msgspec.Struct, frozen=True):
    """A need of each row of `resources`, whose type of resource says on what."""

    operation: Operation
    field: str = "resources"

    def resource_of(self, row: Any) -> tuple[ResourceType, str]:
        """Return type and name of the resource that a row's configs belong to."""
        if row.resource_type == ConfigResourceType.TOPIC:
            return TOPIC, row.resource_name
        if row.resource_type == ConfigResourceType.GROUP:
            return GROUP, row.resource_name
        return CLUSTER, CLUSTER_NAME


class InHandler(msgspec.Struct, frozen=True):
    """A need that the handler checks, in words."""

    resource: ResourceType
    operations: tuple[Operation, ...]
    note: str


Need = Whole | EachRow | EachConfig | InHandler


READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE = Operation.ALTER, Operation.DESCRIBE
CLUSTER_ACTION, IDEMPOTENT_WRITE = Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


def _is_transactional(request: Any) -> bool:
    """Return whether a batch of a Produce request is marked as transactional."""
    return request.transactional_id is not None and any(
        len(batch) >= HEADER_SIZE
        and batch[MAGIC_AT] == MAGIC
        and batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL
        for topic in request.topic_data
        for partition in topic.partition_data
        if (batch := partition.records) is not None
    )


def _cluster(*operations: Operation, top_only: bool = False) -> Whole:
    return Whole(CLUSTER, operations, top_only=top_only)


def _without_names(request: Any) -> Any:
    """Return the request with an empty name for each user, as the rows of Kafka's refusal have."""
    users = [msgspec.structs.replace(user, name="") for user in request.users or ()]
    return msgspec.structs.replace(request, users=users)


_READ_GROUP = Whole(GROUP, (READ,), "group_id", top_only=True)
_READ_GROUP_PER_ROW = Whole(GROUP, (READ,), "group_id")
_WRITE_TRANSACTION = Whole(TRANSACTIONAL_ID, (WRITE,), "transactional_id")
_LISTING = "left out of a list of all topics"
_CREATE_MISSING = InHandler(TOPIC, (CREATE,), "or CREATE on the cluster, to create a missing topic")
_DESCRIBE_GROUPS = EachRow("group_ids", GROUP, DESCRIBE)
_OF_MEMBERS = InHandler(
    TOPIC, (DESCRIBE,), "each topic of the members, else the group has the error"
)

NEEDS: dict[str, tuple[Need, ...]] = {
    "Produce": (
        Whole(
            TRANSACTIONAL_ID,
            (WRITE,),
            "transactional_id",
            when=_is_transactional,
            note="for a transactional batch",
        ),
        EachRow("topic_data", TOPIC, WRITE),
        _CREATE_MISSING,
    ),
    "Fetch": (
        InHandler(TOPIC, (READ,), "each topic of the request or of its fetch session"),
        InHandler(CLUSTER, (CLUSTER_ACTION,), "for a follower, instead of READ"),
    ),
    "ListOffsets": (EachRow("topics", TOPIC, DESCRIBE),),
    "Metadata": (
        InHandler(TOPIC, (DESCRIBE,), _LISTING),
        _CREATE_MISSING,
    ),
    "OffsetCommit": (_READ_GROUP_PER_ROW, EachRow("topics", TOPIC, READ)),
    "OffsetFetch": (
        InHandler(GROUP, (DESCRIBE,), ""),
        InHandler(TOPIC, (DESCRIBE,), _LISTING),
    ),
    "FindCoordinator": (
        InHandler(GROUP, (DESCRIBE,), "for a group"),
        InHandler(TRANSACTIONAL_ID, (DESCRIBE,), "for a transactional id"),
    ),
    "JoinGroup": (_READ_GROUP,),
    "Heartbeat": (_READ_GROUP,),
    "LeaveGroup": (_READ_GROUP,),
    "SyncGroup": (_READ_GROUP,),
    "DescribeGroups": (EachRow("groups", GROUP, DESCRIBE),),
    "ListGroups": (
        InHandler(GROUP, (DESCRIBE,), "or DESCRIBE on the cluster; other groups are left out"),
    ),
    "SaslHandshake": (),
    "ApiVersions": (),
    "CreateTopics": (
        EachRow("topics", TOPIC, CREATE, or_cluster=CREATE),
        InHandler(TOPIC, (DESCRIBE_CONFIGS,), "for the configs in the response"),
    ),
    "DeleteTopics": (
        InHandler(TOPIC, (DELETE,), "with DESCRIBE a missing topic is reported as missing"),
    ),
    "DeleteRecords": (EachRow("topics", TOPIC, DELETE),),
    "InitProducerId": (
        Whole(
            TRANSACTIONAL_ID,
            (WRITE,),
            "transactional_id",
            when=lambda request: request.transactional_id is not None,
            note="with a transactional id",
        ),
        Whole(
            CLUSTER,
            (IDEMPOTENT_WRITE,),
            when=lambda request: request.transactional_id is None,
            on_any_topic=True,
            note="or WRITE on any topic, without a transactional id",
        ),
    ),
    "OffsetForLeaderEpoch": (EachRow("topics", TOPIC, DESCRIBE, or_cluster=CLUSTER_ACTION),),
    "AddPartitionsToTxn": (
        InHandler(TRANSACTIONAL_ID, (WRITE,), "up to version 3"),
        InHandler(TOPIC, (WRITE,), "up to version 3; OPERATION_NOT_ATTEMPTED for other topics"),
        InHandler(CLUSTER, (CLUSTER_ACTION,), "from version 4 on"),
    ),
    "AddOffsetsToTxn": (_WRITE_TRANSACTION, _READ_GROUP),
    "EndTxn": (_WRITE_TRANSACTION,),
    "WriteTxnMarkers": (_cluster(ALTER, CLUSTER_ACTION),),
    "TxnOffsetCommit": (_WRITE_TRANSACTION, _READ_GROUP_PER_ROW, EachRow("topics", TOPIC, READ)),
    "DescribeAcls": (_cluster(DESCRIBE),),
    "CreateAcls": (_cluster(ALTER),),
    "DeleteAcls": (_cluster(ALTER),),
    "DescribeConfigs": (EachConfig(DESCRIBE_CONFIGS),),
    "AlterConfigs": (EachConfig(ALTER_CONFIGS),),
    "AlterReplicaLogDirs": (_cluster(ALTER),),
    "DescribeLogDirs": (_cluster(DESCRIBE, top_only=True),),
    "CreatePartitions": (EachRow("topics", TOPIC, ALTER),),
    "DeleteGroups": (EachRow("groups_names", GROUP, DELETE),),
    "ElectLeaders": (_cluster(ALTER),),
    "IncrementalAlterConfigs": (EachConfig(ALTER_CONFIGS),),
    "AlterPartitionReassignments": (_cluster(ALTER),),
    "ListPartitionReassignments": (_cluster(DESCRIBE),),
    "OffsetDelete": (
        Whole(GROUP, (DELETE,), "group_id", top_only=True),
        EachRow("topics", TOPIC, READ),
    ),
    "DescribeClientQuotas": (_cluster(DESCRIBE_CONFIGS),),
    "AlterClientQuotas": (_cluster(ALTER_CONFIGS),),
    "DescribeUserScramCredentials": (Whole(CLUSTER, (DESCRIBE,), repeated=_without_names),),
    "AlterUserScramCredentials": (_cluster(ALTER),),
    "SaslAuthenticate": (),
    "DescribeQuorum": (_cluster(DESCRIBE, top_only=True),),
    "UpdateFeatures": (_cluster(ALTER, top_only=True),),
    "DescribeCluster": (),
    "DescribeProducers": (EachRow("topics", TOPIC, READ),),
    "DescribeTransactions": (
        EachRow("transactional_ids", TRANSACTIONAL_ID, DESCRIBE),
        InHandler(TOPIC, (DESCRIBE,), "other topics of a transaction are left out"),
    ),
    "ListTransactions": (InHandler(TRANSACTIONAL_ID, (DESCRIBE,), "other ids are left out"),),
    "ConsumerGroupHeartbeat": (
        Whole(GROUP, (READ,), "group_id"),
        Whole(
            TOPIC, (DESCRIBE,), "subscribed_topic_names", note="each topic subscribed to by name"
        ),
    ),
    "ConsumerGroupDescribe": (_DESCRIBE_GROUPS, _OF_MEMBERS),
    "ShareGroupHeartbeat": (
        Whole(GROUP, (READ,), "group_id"),
        Whole(TOPIC, (DESCRIBE,), "subscribed_topic_names", note="each topic subscribed to"),
    ),
    "ShareGroupDescribe": (_DESCRIBE_GROUPS, _OF_MEMBERS),
    "StreamsGroupHeartbeat": (
        Whole(GROUP, (READ,), "group_id"),
        InHandler(TOPIC, (DESCRIBE,), "each topic of the topology"),
        InHandler(
            TOPIC, (CREATE,), "each missing internal topic, or CREATE on the cluster; else a status"
        ),
    ),
    "StreamsGroupDescribe": (
        _DESCRIBE_GROUPS,
        InHandler(TOPIC, (DESCRIBE,), "each topic of the topology, else the group has the error"),
    ),
    "ShareFetch": (
        _READ_GROUP,
        InHandler(TOPIC, (READ,), "each topic of the share session"),
    ),
    "ShareAcknowledge": (_READ_GROUP, InHandler(TOPIC, (READ,), "each topic acknowledged")),
    "DescribeShareGroupOffsets": (
        InHandler(GROUP, (DESCRIBE,), "each group"),
        InHandler(TOPIC, (DESCRIBE,), _LISTING),
    ),
    "AlterShareGroupOffsets": (_READ_GROUP, EachRow("topics", TOPIC, READ)),
    "DeleteShareGroupOffsets": (
        Whole(GROUP, (DELETE,), "group_id", top_only=True),
        EachRow("topics", TOPIC, READ),
    ),
    "ListConfigResources": (_cluster(DESCRIBE_CONFIGS),),
    "DescribeTopicPartitions": (InHandler(TOPIC, (DESCRIBE,), _LISTING),),
}
"""The needs of each API, in the order of checking."""
