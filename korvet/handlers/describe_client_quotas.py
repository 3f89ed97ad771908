"""DescribeClientQuotas. Return the quotas of the entities that match.

Behaviour
- a component matches an entity that has its type, by exact name, as the default, or with any name;
  with `strict` the entity has no other types. No components match every entity
- INVALID_REQUEST for an empty entity type, an unknown match type, an exact match without a name, a
  name with any other match type, an entity type that is listed twice, or `ip` with another type
- UNSUPPORTED_VERSION for an unknown entity type
Versions
- v1 flexible
"""

from collections.abc import Mapping

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.security.quotas import ENTITY_TYPES, IP
from korvet.topics.lifecycle import Refused, invalid_request
from korvet.wire.messages.alter_client_quotas import EntityData
from korvet.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, ANY = range(3)


async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: Context
) -> DescribeClientQuotasResponse:
    try:
        _check(request.components)
    except Refused as refused:
        return DescribeClientQuotasResponse.of(refused.error, refused.reason)
    await context.services.dynamic_config.refresh()
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in named.items()],
            values=[ValueData(key=key, value=value) for key, value in values.items()],
        )
        for named, values in context.services.quotas.entries()
        if _is_wanted(named, request)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _is_wanted(entity: Mapping[str, str | None], request: DescribeClientQuotasRequest) -> bool:
    """Return whether an entity matches every component of the filter."""
    if request.strict and len(entity) != len(request.components):
        return False
    return all(
        row.entity_type in entity
        and (row.match_type == ANY or entity[row.entity_type] == row.match)
        for row in request.components
    )


def _check(components: list[ComponentData]) -> None:
    seen: set[str] = set()
    for row in components:
        if not row.entity_type:
            raise invalid_request("An entity type is empty.")
        if row.entity_type not in ENTITY_TYPES:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {row.entity_type}"
            )
        if row.entity_type in seen:
            raise invalid_request(f"The filter names {row.entity_type} more than once.")
        seen.add(row.entity_type)
        if not EXACT <= row.match_type <= ANY:
            raise invalid_request(f"Unknown match type {row.match_type}")
        if (row.match_type == EXACT) != (row.match is not None):
            raise invalid_request(
                "An exact match requires a name; other match types take none.",
            )
    if IP in seen and len(seen) > 1:
        raise invalid_request("`ip` cannot be combined with other types.")
