"""DescribeClientQuotas (key 48): the quotas of users, client ids and addresses."""

from korvet.wire.messages.alter_client_quotas import EntityData
from korvet.wire.schema import ErrorResponse, Message, f64, i8, request, response


class ComponentData(Message):
    entity_type: str
    match_type: i8
    """0 exact name, 1 the default entity, 2 any."""
    match: str | None
    """Null unless an exact name is asked for."""


@request(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest(Message):
    components: list[ComponentData]
    strict: bool
    """Leave out entities with components that were not asked for."""


class ValueData(Message):
    key: str
    value: f64


class EntryData(Message):
    entity: list[EntityData]
    values: list[ValueData]


@response(DescribeClientQuotasRequest)
class DescribeClientQuotasResponse(ErrorResponse):
    entries: list[EntryData] | None = None
