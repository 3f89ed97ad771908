"""Read and change quotas, as Kafka's tools do."""

import msgspec

from korvet.console.pages.actions import Done
from korvet.console.visit import PageError, Visit, check_row
from korvet.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from korvet.wire.messages.describe_client_quotas import DescribeClientQuotasRequest

MAX_ROWS = 1_000
"""Max quotas on a page."""


class QuotaRow(msgspec.Struct, frozen=True):
    """The quotas of an entity. An empty name is the default of its type."""

    entity: dict[str, str]
    values: dict[str, float]


class QuotasPage(msgspec.Struct, frozen=True):
    """The quotas."""

    quotas: list[QuotaRow]
    total: int


async def load(visit: Visit) -> QuotasPage:
    """Return the quotas; a user needs DESCRIBE_CONFIGS on the cluster."""
    answer = await visit.call(DescribeClientQuotasRequest(components=[], strict=False))
    check_row(answer)
    rows = [
        QuotaRow(
            {each.entity_type: each.entity_name or "" for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or []
    ]
    rows.sort(key=lambda row: sorted(row.entity.items()))
    return QuotasPage(rows[:MAX_ROWS], len(rows))


async def set_quota(visit: Visit) -> Done:
    """Set a quota of an entity, or remove it if the value is empty."""
    form = visit.form
    entity = [
        EntityData(entity_type=kind, entity_name=None if form[kind] == "<default>" else form[kind])
        for kind in ("user", "client-id", "ip")
        if form.get(kind)
    ]
    key, text = form.get("key", ""), form.get("value", "").strip()
    try:
        value = float(text or 0)
    except ValueError:
        raise PageError(400, f"A quota is a number, not {text!r}.") from None
    entry = EntryData(entity=entity, ops=[OpData(key=key, value=value, remove=not text)])
    answer = await visit.call(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    check_row(answer.entries[0])
    return Done("/quotas", f"{key} {f'is {text} now' if text else 'was removed'}.")
