"""UpdateFeatures (key 57), versions 0-2. Which features there are is fixed by the version you run.

Behaviour
- INVALID_UPDATE_VERSION for any feature; a request without features is no error
Versions
- v1 upgrade types and validate_only, v2 no results per feature
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def update_features(
    request: UpdateFeaturesRequest, context: Context
) -> UpdateFeaturesResponse:
    if not request.feature_updates:
        return UpdateFeaturesResponse(error_code=ErrorCode.NONE)
    error = ErrorCode.INVALID_UPDATE_VERSION
    reason = "Features come with the version of Korvet that runs and cannot be changed."
    return UpdateFeaturesResponse(
        error_code=error,
        error_message=reason,
        results=[
            UpdatableFeatureResult(feature=row.feature, error_code=error, error_message=reason)
            for row in request.feature_updates
        ],
    )
