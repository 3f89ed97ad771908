"""UpdateFeatures (key 57), versions 0-2. Which features there are is fixed by the version you run.

Behaviour
- the level a feature has already is no change and no error, as Kafka says; nor is a level of
  Kafka 4.3 or later of a feature that nothing here depends on, such as metadata.version
- an upgrade to a release, which names metadata.version and all else that comes with it, brings
  no share and no streams groups, and is no error for that; asked for by themselves they are one
- INVALID_UPDATE_VERSION for any other: then nothing is changed, and every result says so
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
"""An upgrade, a safe and an unsafe downgrade."""
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
    """Why the feature cannot have that level, or None where there is nothing to do."""
    feature, level = row.feature, row.max_version_level
    if row.upgrade_type not in _TYPES:
        return f"{row.upgrade_type} is no way to change {feature}."
    if feature in NOT_SERVED and level > 0:
        told = f"{feature}: {NOT_SERVED[feature]} are not served."
        return None if RELEASE in named else told
    lowest = WITHOUT_MEANING.get(feature)
    if FEATURES.get(feature) == level or (lowest is not None and level >= lowest):
        return None
    return (
        f"{feature} cannot be set to {level}: "
        "features come with the version of Korvet that runs and cannot be changed."
    )
