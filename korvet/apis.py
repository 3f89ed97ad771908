"""The API table: which Kafka APIs are served, in which versions, and by which handler.

Dispatch and ApiVersions read these rows and nothing else. A row holds the key, Kafka's name, the
versions served, the shapes of request and response, and the handler.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from korvet.context import Context
from korvet.handlers.add_offsets_to_txn import add_offsets_to_txn
from korvet.handlers.add_partitions_to_txn import add_partitions_to_txn
from korvet.handlers.alter_configs import alter_configs
from korvet.handlers.alter_partition_reassignments import alter_partition_reassignments
from korvet.handlers.alter_replica_log_dirs import alter_replica_log_dirs
from korvet.handlers.api_versions import api_versions
from korvet.handlers.consumer_group_describe import consumer_group_describe
from korvet.handlers.consumer_group_heartbeat import consumer_group_heartbeat
from korvet.handlers.create_acls import create_acls
from korvet.handlers.create_partitions import create_partitions
from korvet.handlers.create_topics import create_topics
from korvet.handlers.delete_acls import delete_acls
from korvet.handlers.delete_groups import delete_groups
from korvet.handlers.delete_records import delete_records
from korvet.handlers.delete_topics import delete_topics
from korvet.handlers.describe_acls import describe_acls
from korvet.handlers.describe_client_quotas import describe_client_quotas
from korvet.handlers.describe_cluster import describe_cluster
from korvet.handlers.describe_configs import describe_configs
from korvet.handlers.describe_groups import describe_groups
from korvet.handlers.describe_log_dirs import describe_log_dirs
from korvet.handlers.describe_producers import describe_producers
from korvet.handlers.describe_quorum import describe_quorum
from korvet.handlers.describe_topic_partitions import describe_topic_partitions
from korvet.handlers.describe_transactions import describe_transactions
from korvet.handlers.describe_user_scram_credentials import describe_user_scram_credentials
from korvet.handlers.elect_leaders import elect_leaders
from korvet.handlers.end_txn import end_txn
from korvet.handlers.fetch import fetch
from korvet.handlers.find_coordinator import find_coordinator
from korvet.handlers.heartbeat import heartbeat
from korvet.handlers.incremental_alter_configs import incremental_alter_configs
from korvet.handlers.init_producer_id import init_producer_id
from korvet.handlers.join_group import join_group
from korvet.handlers.leave_group import leave_group
from korvet.handlers.list_config_resources import list_config_resources
from korvet.handlers.list_groups import list_groups
from korvet.handlers.list_offsets import list_offsets
from korvet.handlers.list_partition_reassignments import list_partition_reassignments
from korvet.handlers.list_transactions import list_transactions
from korvet.handlers.metadata import metadata
from korvet.handlers.offset_commit import offset_commit
from korvet.handlers.offset_delete import offset_delete
from korvet.handlers.offset_fetch import offset_fetch
from korvet.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from korvet.handlers.produce import produce
from korvet.handlers.sasl_handshake import sasl_handshake
from korvet.handlers.sync_group import sync_group
from korvet.handlers.txn_offset_commit import txn_offset_commit
from korvet.handlers.update_features import update_features
from korvet.handlers.write_txn_markers import write_txn_markers
from korvet.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from korvet.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from korvet.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from korvet.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from korvet.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from korvet.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from korvet.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from korvet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from korvet.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from korvet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from korvet.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from korvet.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from korvet.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from korvet.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from korvet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from korvet.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from korvet.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from korvet.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from korvet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from korvet.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from korvet.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from korvet.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from korvet.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from korvet.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from korvet.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from korvet.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from korvet.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from korvet.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from korvet.wire.messages.fetch import FetchRequest, FetchResponse
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from korvet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from korvet.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from korvet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from korvet.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from korvet.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from korvet.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from korvet.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from korvet.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from korvet.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from korvet.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from korvet.wire.messages.metadata import MetadataRequest, MetadataResponse
from korvet.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from korvet.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from korvet.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from korvet.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from korvet.wire.messages.produce import ProduceRequest, ProduceResponse
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from korvet.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from korvet.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from korvet.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from korvet.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from korvet.wire.schema import Message

Handler = Callable[[Any, Context], Awaitable[Message | None]]


class Api(msgspec.Struct, frozen=True):
    """Row of the API table. `versions`: the lowest and the highest version served."""

    key: int
    name: str
    versions: tuple[int, int]
    request: type[Message]
    response: type[Message]
    handler: Handler


TABLE: tuple[Api, ...] = (
    Api(0, "Produce", (0, 13), ProduceRequest, ProduceResponse, produce),
    Api(1, "Fetch", (0, 18), FetchRequest, FetchResponse, fetch),
    Api(2, "ListOffsets", (0, 11), ListOffsetsRequest, ListOffsetsResponse, list_offsets),
    Api(3, "Metadata", (0, 13), MetadataRequest, MetadataResponse, metadata),
    Api(8, "OffsetCommit", (0, 10), OffsetCommitRequest, OffsetCommitResponse, offset_commit),
    Api(9, "OffsetFetch", (0, 10), OffsetFetchRequest, OffsetFetchResponse, offset_fetch),
    Api(
        10,
        "FindCoordinator",
        (0, 6),
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        find_coordinator,
    ),
    Api(11, "JoinGroup", (0, 9), JoinGroupRequest, JoinGroupResponse, join_group),
    Api(12, "Heartbeat", (0, 4), HeartbeatRequest, HeartbeatResponse, heartbeat),
    Api(13, "LeaveGroup", (0, 5), LeaveGroupRequest, LeaveGroupResponse, leave_group),
    Api(14, "SyncGroup", (0, 5), SyncGroupRequest, SyncGroupResponse, sync_group),
    Api(
        15, "DescribeGroups", (0, 6), DescribeGroupsRequest, DescribeGroupsResponse, describe_groups
    ),
    Api(16, "ListGroups", (0, 5), ListGroupsRequest, ListGroupsResponse, list_groups),
    Api(17, "SaslHandshake", (0, 1), SaslHandshakeRequest, SaslHandshakeResponse, sasl_handshake),
    Api(18, "ApiVersions", (0, 5), ApiVersionsRequest, ApiVersionsResponse, api_versions),
    Api(19, "CreateTopics", (0, 7), CreateTopicsRequest, CreateTopicsResponse, create_topics),
    Api(20, "DeleteTopics", (0, 6), DeleteTopicsRequest, DeleteTopicsResponse, delete_topics),
    Api(21, "DeleteRecords", (0, 2), DeleteRecordsRequest, DeleteRecordsResponse, delete_records),
    Api(
        22,
        "InitProducerId",
        (0, 5),
        InitProducerIdRequest,
        InitProducerIdResponse,
        init_producer_id,
    ),
    Api(
        23,
        "OffsetForLeaderEpoch",
        (0, 4),
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        offset_for_leader_epoch,
    ),
    Api(
        24,
        "AddPartitionsToTxn",
        (0, 5),
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        add_partitions_to_txn,
    ),
    Api(
        25,
        "AddOffsetsToTxn",
        (0, 4),
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
        add_offsets_to_txn,
    ),
    Api(26, "EndTxn", (0, 5), EndTxnRequest, EndTxnResponse, end_txn),
    Api(
        27,
        "WriteTxnMarkers",
        (0, 2),
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
        write_txn_markers,
    ),
    Api(
        28,
        "TxnOffsetCommit",
        (0, 6),
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
        txn_offset_commit,
    ),
    Api(29, "DescribeAcls", (0, 3), DescribeAclsRequest, DescribeAclsResponse, describe_acls),
    Api(30, "CreateAcls", (0, 3), CreateAclsRequest, CreateAclsResponse, create_acls),
    Api(31, "DeleteAcls", (0, 3), DeleteAclsRequest, DeleteAclsResponse, delete_acls),
    Api(
        32,
        "DescribeConfigs",
        (0, 4),
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        describe_configs,
    ),
    Api(33, "AlterConfigs", (0, 2), AlterConfigsRequest, AlterConfigsResponse, alter_configs),
    Api(
        34,
        "AlterReplicaLogDirs",
        (0, 2),
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        alter_replica_log_dirs,
    ),
    Api(
        35,
        "DescribeLogDirs",
        (0, 5),
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        describe_log_dirs,
    ),
    Api(
        37,
        "CreatePartitions",
        (0, 3),
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        create_partitions,
    ),
    Api(42, "DeleteGroups", (0, 3), DeleteGroupsRequest, DeleteGroupsResponse, delete_groups),
    Api(43, "ElectLeaders", (0, 2), ElectLeadersRequest, ElectLeadersResponse, elect_leaders),
    Api(
        44,
        "IncrementalAlterConfigs",
        (0, 1),
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        incremental_alter_configs,
    ),
    Api(
        45,
        "AlterPartitionReassignments",
        (0, 1),
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        alter_partition_reassignments,
    ),
    Api(
        46,
        "ListPartitionReassignments",
        (0, 0),
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        list_partition_reassignments,
    ),
    Api(47, "OffsetDelete", (0, 0), OffsetDeleteRequest, OffsetDeleteResponse, offset_delete),
    Api(
        48,
        "DescribeClientQuotas",
        (0, 1),
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
        describe_client_quotas,
    ),
    Api(
        50,
        "DescribeUserScramCredentials",
        (0, 0),
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        describe_user_scram_credentials,
    ),
    Api(
        55, "DescribeQuorum", (0, 2), DescribeQuorumRequest, DescribeQuorumResponse, describe_quorum
    ),
    Api(
        57, "UpdateFeatures", (0, 2), UpdateFeaturesRequest, UpdateFeaturesResponse, update_features
    ),
    Api(
        60,
        "DescribeCluster",
        (0, 2),
        DescribeClusterRequest,
        DescribeClusterResponse,
        describe_cluster,
    ),
    Api(
        61,
        "DescribeProducers",
        (0, 0),
        DescribeProducersRequest,
        DescribeProducersResponse,
        describe_producers,
    ),
    Api(
        65,
        "DescribeTransactions",
        (0, 0),
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        describe_transactions,
    ),
    Api(
        66,
        "ListTransactions",
        (0, 2),
        ListTransactionsRequest,
        ListTransactionsResponse,
        list_transactions,
    ),
    Api(
        68,
        "ConsumerGroupHeartbeat",
        (0, 1),
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        consumer_group_heartbeat,
    ),
    Api(
        69,
        "ConsumerGroupDescribe",
        (0, 1),
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        consumer_group_describe,
    ),
    Api(
        74,
        "ListConfigResources",
        (0, 1),
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
        list_config_resources,
    ),
    Api(
        75,
        "DescribeTopicPartitions",
        (0, 0),
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        describe_topic_partitions,
    ),
)

BY_KEY: dict[int, Api] = {row.key: row for row in TABLE}
