"""AlterClientQuotas. Set or remove the quotas of clients.

Behaviour
- the quotas hold for all brokers together, and change on all of them within a second
- checked per entry: INVALID_REQUEST for no entity, an unknown or repeated entity type, `ip` with
  another type, an empty name, an ip that is no address, an unknown key, a key that the entity
  cannot have, a value that is not above 0 or above a long, or a fraction for a byte rate
- validate_only does all checks and writes nothing
Versions
- v1 flexible
"""

import math
from ipaddress import ip_address

from korvet.base.errors import ErrorCode
from korvet.config.setting import LONG_MAX
from korvet.context import Context
from korvet.security.quotas import (
    CONNECTIONS,
    CONSUMER_BYTES,
    ENTITY_TYPES,
    IP,
    OF_CLIENTS,
    PRODUCER_BYTES,
    resource_of,
)
from korvet.topics.lifecycle import Refused, invalid_request
from korvet.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryDataResponse,
    OpData,
)


async def alter_client_quotas(
    request: AlterClientQuotasRequest, context: Context
) -> AlterClientQuotasResponse:
    rows = []
    for entry in request.entries:
        error, reason = ErrorCode.NONE, None
        try:
            changes = _check(entry)
            if not request.validate_only:
                resource = resource_of({row.entity_type: row.entity_name for row in entry.entity})
                await context.services.config_admin.alter_quotas(resource, changes)
        except Refused as refused:
            error, reason = refused.error, refused.reason
        row = EntryDataResponse(error_code=error, error_message=reason, entity=entry.entity)
        rows.append(row)
    return AlterClientQuotasResponse(entries=rows)


def _check(entry: EntryData) -> dict[str, str | None]:
    """Return the changes of an entry, null to remove a quota. Raises Refused."""
    _check_entity(entry.entity)
    types = {row.entity_type for row in entry.entity}
    known = (CONNECTIONS,) if IP in types else OF_CLIENTS
    changes: dict[str, str | None] = {}
    for op in entry.ops:
        if op.key not in known and not op.remove:
            raise invalid_request(f"{op.key} is not a quota of {' and '.join(sorted(types))}.")
        if op.key in changes:
            raise invalid_request(f"{op.key} is given twice.")
        changes[op.key] = None if op.remove else _value(op)
    return changes


def _check_entity(entity: list[EntityData]) -> None:
    types = [row.entity_type for row in entity]
    if not types:
        raise invalid_request("An entry needs an entity.")
    unknown = [each for each in types if each not in ENTITY_TYPES]
    if unknown:
        raise invalid_request(
            f"Unknown entity type {unknown[0]!r}: known are {', '.join(ENTITY_TYPES)}."
        )
    if len(set(types)) < len(types):
        raise invalid_request("An entity type is given twice.")
    if IP in types and len(types) > 1:
        raise invalid_request("`ip` cannot be combined with other types.")
    for row in entity:
        if row.entity_name == "":
            raise invalid_request("An entity name is empty; null is the default entity.")
        if row.entity_type == IP and row.entity_name is not None:
            _check_address(row.entity_name)


def _check_address(text: str) -> None:
    try:
        ip_address(text)
    except ValueError:
        raise invalid_request(f"{text!r} is no IP address.") from None


def _value(op: OpData) -> str:
    if not (math.isfinite(op.value) and op.value > 0):
        raise invalid_request(f"{op.key} must be above 0, not {op.value}.")
    if op.value > LONG_MAX:
        raise invalid_request(f"{op.key} must be at most {LONG_MAX}, not {op.value}.")
    whole = op.key in (PRODUCER_BYTES, CONSUMER_BYTES, CONNECTIONS)
    if whole and not op.value.is_integer():
        raise invalid_request(f"{op.key} must be a whole number, not {op.value}.")
    return repr(op.value)
