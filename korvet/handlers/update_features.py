"""UpdateFeatures (key 57), versions 0-2. Accept only levels that the running release has.

Behaviour
- setting a feature to its current level is no error, as in Kafka; nor is a level of Kafka 4.3 or
  later for a feature on which nothing in Korvet depends, such as metadata.version
- streams.version is accepted without effect in an upgrade to a release, which names
  metadata.version too; without it it is an error
- INVALID_UPDATE_VERSION for any other level: no feature is changed, and each result has the error
Versions
- v1 upgrade types and validate_only, v2 no results per feature
"""

from collections.abc import Collection

from korvet.admin.features import FEATURES, NOT_SERVED, RELEASE, WITHOUT_MEANING
from korvet.context import Context
from korvet.errors import ErrorCode
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
    named = {row.feature for row in request.feature_updates}
    refusals = (_refusal(row, named) for row in request.feature_updates)
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


def _refusal(row: FeatureUpdateKey, named: Collection[str]) -> str | None:
    """Return why the feature cannot have that level; None if it can."""
    feature, level = row.feature, row.max_version_level
    if row.upgrade_type not in _TYPES:
        return f"{feature}: {row.upgrade_type} is no upgrade type."
    if feature in NOT_SERVED and level > 0:
        reason = f"{feature}: {NOT_SERVED[feature]} are not served."
        return None if RELEASE in named else reason
    lowest = WITHOUT_MEANING.get(feature)
    if FEATURES.get(feature) == level or (lowest is not None and level >= lowest):
        return None
    return (
        f"{feature} cannot be set to {level}: the release that runs fixes the levels of features."
    )
