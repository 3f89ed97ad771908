"""The table: which Kafka APIs are served, in which versions, and by whom.

Dispatch and ApiVersions read these rows and nothing else. A row holds the key, Kafka's name, the
versions served, the shapes of request and response, and the handler.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from korvet.context import Context
from korvet.handlers.api_versions import api_versions
from korvet.handlers.create_topics import create_topics
from korvet.handlers.delete_topics import delete_topics
from korvet.handlers.describe_cluster import describe_cluster
from korvet.handlers.describe_configs import describe_configs
from korvet.handlers.fetch import fetch
from korvet.handlers.find_coordinator import find_coordinator
from korvet.handlers.init_producer_id import init_producer_id
from korvet.handlers.list_offsets import list_offsets
from korvet.handlers.metadata import metadata
from korvet.handlers.produce import produce
from korvet.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from korvet.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from korvet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from korvet.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from korvet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from korvet.wire.messages.fetch import FetchRequest, FetchResponse
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from korvet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from korvet.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from korvet.wire.messages.metadata import MetadataRequest, MetadataResponse
from korvet.wire.messages.produce import ProduceRequest, ProduceResponse
from korvet.wire.schema import Message

Handler = Callable[[Any, Context], Awaitable[Message | None]]


class Api(msgspec.Struct, frozen=True):
    """One row. `versions` are those served, lowest and highest."""

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
    Api(
        10,
        "FindCoordinator",
        (0, 6),
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        find_coordinator,
    ),
    Api(18, "ApiVersions", (0, 4), ApiVersionsRequest, ApiVersionsResponse, api_versions),
    Api(19, "CreateTopics", (0, 7), CreateTopicsRequest, CreateTopicsResponse, create_topics),
    Api(20, "DeleteTopics", (0, 6), DeleteTopicsRequest, DeleteTopicsResponse, delete_topics),
    Api(
        22,
        "InitProducerId",
        (0, 5),
        InitProducerIdRequest,
        InitProducerIdResponse,
        init_producer_id,
    ),
    Api(
        32,
        "DescribeConfigs",
        (0, 4),
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        describe_configs,
    ),
    Api(
        60,
        "DescribeCluster",
        (0, 2),
        DescribeClusterRequest,
        DescribeClusterResponse,
        describe_cluster,
    ),
)

BY_KEY: dict[int, Api] = {row.key: row for row in TABLE}
