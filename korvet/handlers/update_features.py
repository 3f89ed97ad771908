"""UpdateFeatures (key 57), versions 0-2. Which features there are is fixed by the version you run.

Behaviour
- the level a feature has already is no change and no error, as Kafka says
- INVALID_UPDATE_VERSION for any other: then nothing is changed, and every result says so
Versions
- v1 upgrade types and validate_only, v2 no results per feature
"""

from korvet.context import Context
from korvet.errors import ErrorCode
from korvet.features import FEATURES
from korvet.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def update_features(
    request: UpdateFeaturesRequest, context: Context
) -> UpdateFeaturesResponse:
    error, reason = ErrorCode.NONE, None
    for row in request.feature_updates:
        if FEATURES.get(row.feature) != row.max_version_level:
            error = ErrorCode.INVALID_UPDATE_VERSION
            reason = (
                f"{row.feature} cannot be set to {row.max_version_level}: "
                "features come with the version of Korvet that runs and cannot be changed."
            )
    return UpdateFeaturesResponse(
        error_code=error,
        error_message=reason,
        results=[
            UpdatableFeatureResult(feature=row.feature, error_code=error, error_message=reason)
            for row in request.feature_updates
        ],
    )
