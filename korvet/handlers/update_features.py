"""UpdateFeatures. Accept only levels that the running release has.

Behaviour
- setting a feature to its current level is no error, as in Kafka; nor is a level of Kafka 4.3 or
  later for a feature on which nothing in Korvet depends, such as metadata.version
- INVALID_UPDATE_VERSION for any other level: no feature is changed, and each result has the error
Versions
- v1 upgrade types and validate_only, v2 no results per feature
"""

from korvet.admin.features import FEATURES, WITHOUT_MEANING
from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_TYPES = frozenset({1, 2, 3})
"""Upgrade, safe downgrade, unsafe downgrade."""
_ONE_OF_THEM = "The update failed for all features, since one of them had an error: "


async def update_features(
    request: UpdateFeaturesRequest, context: Context
) -> UpdateFeaturesResponse:
    refusals = (_refusal(row) for row in request.feature_updates)
    reason = next(filter(None, refusals), None)
    error = ErrorCode.INVALID_UPDATE_VERSION if reason else ErrorCode.NONE
    if reason and len(request.feature_updates) > 1:
        reason = _ONE_OF_THEM + reason
    return UpdateFeaturesResponse(
        error_code=error,
        error_message=reason,
        results=[
            UpdatableFeatureResult(feature=row.feature, error_code=error, error_message=reason)
            for row in request.feature_updates
        ],
    )


def _refusal(row: FeatureUpdateKey) -> str | None:
    """Return why the feature cannot have that level; None if it can."""
    feature, level = row.feature, row.max_version_level
    if row.upgrade_type not in _TYPES:
        return f"{feature}: {row.upgrade_type} is no upgrade type."
    lowest = WITHOUT_MEANING.get(feature)
    if FEATURES.get(feature) == level or (lowest is not None and level >= lowest):
        return None
    return (
        f"{feature} cannot be set to {level}: the release that runs fixes the levels of features."
    )
