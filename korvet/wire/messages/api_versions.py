"""ApiVersions (key 18): which APIs, in which versions.

The only request that is answered, as version 0, even if its own version is unknown. From 4 on a
feature's min_version may be 0; in 3 the broker leaves such a feature out. From 5 on the request
names the cluster and the broker that the client expects (KIP-1242).
"""

from typing import Annotated

from korvet.wire.schema import Field, Message, i16, i32, i64, request, response


@request(key=18, versions=(0, 5), flexible=3)
class ApiVersionsRequest(Message):
    client_software_name: Annotated[str, Field(since=3)] = ""
    client_software_version: Annotated[str, Field(since=3)] = ""
    cluster_id: Annotated[str | None, Field(since=5)] = None
    node_id: Annotated[i32, Field(since=5)] = -1
    """Either both are given or neither."""


class ApiVersion(Message):
    api_key: i16
    min_version: i16
    max_version: i16


class SupportedFeatureKey(Message):
    name: str
    min_version: i16
    max_version: i16


class FinalizedFeatureKey(Message):
    name: str
    max_version_level: i16
    min_version_level: i16


@response(ApiVersionsRequest)
class ApiVersionsResponse(Message):
    error_code: i16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: Annotated[i32, Field(since=1)] = 0
    supported_features: Annotated[list[SupportedFeatureKey], Field(since=3, tag=0)] = []
    finalized_features_epoch: Annotated[i64, Field(since=3, tag=1)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], Field(since=3, tag=2)] = []
    zk_migration_ready: Annotated[bool, Field(since=3, tag=3)] = False
