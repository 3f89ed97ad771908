"""UpdateFeatures (key 57): raise or lower the finalized version of features."""

from typing import Annotated

from korvet.wire.schema import ErrorResponse, Field, Message, i8, i16, i32, request, response


class FeatureUpdateKey(Message):
    feature: str
    max_version_level: i16
    allow_downgrade: Annotated[bool, Field(until=0)] = False
    upgrade_type: Annotated[i8, Field(since=1)] = 1


@request(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest(Message):
    timeout_ms: i32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: Annotated[bool, Field(since=1)] = False


class UpdatableFeatureResult(Message):
    feature: str
    error_code: i16 = 0
    error_message: str | None = None


@response(UpdateFeaturesRequest)
class UpdateFeaturesResponse(ErrorResponse):
    results: Annotated[list[UpdatableFeatureResult], Field(until=1)] = []
