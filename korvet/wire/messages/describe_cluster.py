"""DescribeCluster (key 60): the cluster's id, its controller and its brokers."""

from typing import Annotated

from korvet.wire.schema import ErrorResponse, Field, Message, i8, i32, request, response


@request(key=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool
    endpoint_type: Annotated[i8, Field(since=1)] = 1
    """1 brokers, 2 controllers."""
    include_fenced_brokers: Annotated[bool, Field(since=2)] = False


class DescribeClusterBroker(Message):
    broker_id: i32
    host: str
    port: i32
    rack: str | None = None
    is_fenced: Annotated[bool, Field(since=2)] = False


@response(DescribeClusterRequest)
class DescribeClusterResponse(ErrorResponse):
    endpoint_type: Annotated[i8, Field(since=1)] = 1
    cluster_id: str = ""
    controller_id: i32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: i32 = -2147483648
