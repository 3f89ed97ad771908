"""ApiVersions. Return the APIs and versions that this broker serves.

Behaviour
- the list is the table by which requests are dispatched
- a version above 5 is answered as version 0 with UNSUPPORTED_VERSION and the list (dispatch)
- features: group.version 1 (KIP-848), share.version 1 (KIP-932), streams.version 1 (KIP-1071),
  transaction.version 2 (KIP-890: EndTxn 5 bumps the epoch, Produce 12 adds partitions)
- INVALID_REQUEST for a software name or version with characters other than letters, digits, '.' and
  '-', and for a cluster id without a node id or the reverse
- REBOOTSTRAP_REQUIRED for a client that expects another cluster (KIP-1242); one that expects
  another broker of this cluster gets no error, as any broker can serve it
Versions
- v1 throttle_time_ms, v3 flexible, client software name and version, v5 the cluster and node id
  that the client expects
"""

import re

from korvet.admin.features import FEATURES, FEATURES_EPOCH
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9\-.]*[A-Za-z0-9])?")


async def api_versions(request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    error = _refusal(request, context)
    if error:
        return ApiVersionsResponse(error_code=error, api_keys=[])
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=row.key, min_version=row.versions[0], max_version=row.versions[1])
            for row in context.services.apis
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=int(context.version < 4), max_version=level)
            for name, level in FEATURES.items()
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ],
    )


def _refusal(request: ApiVersionsRequest, context: Context) -> ErrorCode:
    names = (request.client_software_name, request.client_software_version)
    if context.version >= 3 and not all(_NAME.fullmatch(name) for name in names):
        return ErrorCode.INVALID_REQUEST
    if (request.cluster_id is None) != (request.node_id == -1):
        return ErrorCode.INVALID_REQUEST
    if request.cluster_id not in (None, context.services.registration.cluster_id):
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE
