"""AlterClientQuotas (key 49): set or remove quotas."""

from korvet.wire.schema import Message, Response, f64, i16, request, response


class EntityData(Message):
    entity_type: str
    entity_name: str | None
    """Null is the default entity."""


class OpData(Message):
    key: str
    value: f64
    remove: bool


class EntryData(Message):
    entity: list[EntityData]
    ops: list[OpData]


@request(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest(Message):
    entries: list[EntryData]
    validate_only: bool


class EntryDataResponse(Message):
    error_code: i16 = 0
    error_message: str | None = None
    entity: list[EntityData]


@response(AlterClientQuotasRequest)
class AlterClientQuotasResponse(Response):
    entries: list[EntryDataResponse]
