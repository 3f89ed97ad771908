"""DescribeQuorum. Return the brokers in the form of a metadata quorum.

Behaviour
- the metadata is in Redis: the controller is reported as leader and only voter, the other live
  brokers as observers, the version of the topic table as the offset of all; no broker lags
- UNKNOWN_TOPIC_OR_PARTITION for anything but partition 0 of __cluster_metadata
Versions
- v1 fetch and caught-up times, v2 directory ids, error messages and the controllers' addresses
"""

from time import time

from korvet.base.errors import ErrorCode
from korvet.cluster.registration import BrokerRegistration
from korvet.context import Context
from korvet.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)

METADATA = "__cluster_metadata"


async def describe_quorum(
    request: DescribeQuorumRequest, context: Context
) -> DescribeQuorumResponse:
    registration = context.services.registration
    end = await context.topics.version()
    topics = [
        TopicDataResponse(
            topic_name=row.topic_name,
            partitions=[
                _partition(row.topic_name, partition.partition_index, end, registration)
                for partition in row.partitions
            ],
        )
        for row in request.topics
    ]
    return DescribeQuorumResponse(
        topics=topics,
        nodes=[
            Node(
                node_id=broker.id,
                listeners=[
                    Listener(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
                    for endpoint in broker.endpoints
                ],
            )
            for broker in registration.brokers
            if broker.id == registration.controller
        ],
    )


def _partition(
    name: str, number: int, end: int, registration: BrokerRegistration
) -> PartitionDataResponse:
    is_known = name == METADATA and number == 0
    error = ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    now_ms = int(time() * 1000)
    states = {
        broker.id: ReplicaState(
            replica_id=broker.id,
            log_end_offset=end,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for broker in registration.brokers
        if is_known
    }
    leader = registration.controller if is_known else 0
    return PartitionDataResponse(
        partition_index=number,
        error_code=error,
        error_message=None if is_known else error.message,
        leader_id=leader,
        leader_epoch=0,
        high_watermark=end if is_known else 0,
        current_voters=[state for broker, state in states.items() if broker == leader],
        observers=[state for broker, state in states.items() if broker != leader],
    )
