"""DescribeCluster. Return the cluster id, controller and live brokers.

Behaviour
- brokers with their addresses on the client's listener; brokers without that listener are left out
- MISMATCHED_ENDPOINT_TYPE for controllers (2): there are no separate ones;
  UNSUPPORTED_ENDPOINT_TYPE for any type other than brokers (1)
Versions
- v1 endpoint_type, v2 fenced brokers (there are none)
"""

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.security.acl import CLUSTER_NAME, ResourceType
from korvet.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


async def describe_cluster(
    request: DescribeClusterRequest, context: Context
) -> DescribeClusterResponse:
    registration = context.services.registration
    if request.endpoint_type != BROKERS:
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        if request.endpoint_type == CONTROLLERS:
            error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        reason = "Use endpoint type 1 (brokers): there are no separate controllers."
        return DescribeClusterResponse.of(error, reason)
    nodes = registration.nodes(context.session.listener)
    return DescribeClusterResponse(
        cluster_id=registration.cluster_id,
        controller_id=registration.controller_of(nodes),
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
        ],
        cluster_authorized_operations=context.authorized_operations(
            ResourceType.CLUSTER,
            CLUSTER_NAME,
            asked=request.include_cluster_authorized_operations,
        ),
    )
