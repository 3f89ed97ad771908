"""Fetch (key 1): read record batches from partitions, and wait for `min_bytes` of them.

Up to 1 the reader understands magic 0 only, up to 3 magic 1 as well, from 4 on magic 2. Fetch
sessions begin with 7, zstd with 10, topic ids replace names with 13, and from 16 on a
response names the current leader of a partition.
"""

from typing import Annotated

from korvet.wire.schema import (
    ZERO_UUID,
    Field,
    Message,
    batch_parts,
    i8,
    i16,
    i32,
    i64,
    request,
    response,
    uuid,
)
from korvet.wire.structs import LeaderIdAndEpoch, NodeEndpoint


class ReplicaState(Message):
    replica_id: i32 = -1
    replica_epoch: i64 = -1


class FetchPartition(Message):
    partition: i32
    current_leader_epoch: Annotated[i32, Field(since=9)] = -1
    fetch_offset: i64
    last_fetched_epoch: Annotated[i32, Field(since=12)] = -1
    log_start_offset: Annotated[i64, Field(since=5)] = -1
    """Sent by followers."""
    partition_max_bytes: i32
    replica_directory_id: Annotated[uuid, Field(since=17, tag=0)] = ZERO_UUID
    high_watermark: Annotated[i64, Field(since=18, tag=1)] = 9223372036854775807
    """The high watermark that a follower knows; the largest value: unknown."""


class FetchTopic(Message):
    topic: Annotated[str, Field(until=12)] = ""
    topic_id: Annotated[uuid, Field(since=13)] = ZERO_UUID
    partitions: list[FetchPartition]


class ForgottenTopic(Message):
    topic: Annotated[str, Field(until=12)] = ""
    topic_id: Annotated[uuid, Field(since=13)] = ZERO_UUID
    partitions: list[i32]


@request(key=1, versions=(0, 18), flexible=12)
class FetchRequest(Message):
    cluster_id: Annotated[str | None, Field(since=12, tag=0)] = None
    replica_id: Annotated[i32, Field(until=14)] = -1
    """-1 for a consumer; from 15 on in `replica_state`: see `follower`."""
    replica_state: Annotated[ReplicaState, Field(since=15, tag=1)] = ReplicaState()
    max_wait_ms: i32
    min_bytes: i32
    max_bytes: Annotated[i32, Field(since=3)] = 2147483647
    isolation_level: Annotated[i8, Field(since=4)] = 0
    """0: all records; 1: committed records only."""
    session_id: Annotated[i32, Field(since=7)] = 0
    session_epoch: Annotated[i32, Field(since=7)] = -1
    """-1: no session; 0: open one; else the next request of one."""
    topics: list[FetchTopic]
    forgotten_topics_data: Annotated[list[ForgottenTopic], Field(since=7)] = []
    """Partitions to drop from the session."""
    rack_id: Annotated[str, Field(since=11)] = ""

    @property
    def follower(self) -> int:
        """The node id of a follower that fetches, negative for a consumer."""
        return max(self.replica_id, self.replica_state.replica_id)


class EpochEndOffset(Message):
    epoch: i32 = -1
    end_offset: i64 = -1


class SnapshotId(Message):
    end_offset: i64 = -1
    epoch: i32 = -1


class AbortedTransaction(Message):
    producer_id: i64
    first_offset: i64


class PartitionData(Message):
    partition_index: i32
    error_code: i16 = 0
    high_watermark: i64
    last_stable_offset: Annotated[i64, Field(since=4)] = -1
    log_start_offset: Annotated[i64, Field(since=5)] = -1
    diverging_epoch: Annotated[EpochEndOffset, Field(since=12, tag=0)] = EpochEndOffset()
    """The end of the last epoch that the log and its reader have in common."""
    current_leader: Annotated[LeaderIdAndEpoch, Field(since=12, tag=1)] = LeaderIdAndEpoch()
    """With NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH: the current leader."""
    snapshot_id: Annotated[SnapshotId, Field(since=12, tag=2)] = SnapshotId()
    aborted_transactions: Annotated[list[AbortedTransaction] | None, Field(since=4)] = []
    """Null under isolation level 0."""
    preferred_read_replica: Annotated[i32, Field(since=11)] = -1
    records: batch_parts | None


class FetchableTopicResponse(Message):
    topic: Annotated[str, Field(until=12)] = ""
    topic_id: Annotated[uuid, Field(since=13)] = ZERO_UUID
    partitions: list[PartitionData]


@response(FetchRequest)
class FetchResponse(Message):
    throttle_time_ms: Annotated[i32, Field(since=1)] = 0
    error_code: Annotated[i16, Field(since=7)] = 0
    """The error of the whole request, such as one of its fetch session."""
    session_id: Annotated[i32, Field(since=7)] = 0
    responses: list[FetchableTopicResponse]
    node_endpoints: Annotated[list[NodeEndpoint], Field(since=16, tag=0)] = []
