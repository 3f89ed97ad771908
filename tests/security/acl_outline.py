"""The part of a response that is the same on every broker with the same rules."""

from typing import Any
from uuid import UUID

import msgspec

CODES = ("error_code", "partition_error_code", "topic_config_error_code")
BITS = "authorized_operations"
NAMES = frozenset(
    [
        "name",
        "topic",
        "topic_name",
        "topic_id",
        "group_id",
        "transactional_id",
        "user",
        "resource_name",
        "key",
        "principal",
        "partition_index",
        "partition",
        "index",
        "partition_id",
    ]
)
ONLY_PRESENCE = frozenset(
    [
        "brokers",
        "nodes",
        "endpoints",
        "node_endpoints",
        "supported_features",
        "finalized_features",
        "api_keys",
        "mechanisms",
        "configs",
        "members",
        "active_producers",
        "replica_nodes",
        "isr_nodes",
        "offline_replicas",
        "current_voters",
        "observers",
        "credential_infos",
        "config_resources",
    ]
)
INTERNAL = "__"


def outline(value: Any) -> Any:
    """Return the codes, the rows with their names, and the bits of authorized operations."""
    if isinstance(value, msgspec.Struct):
        found = {name: _field(name, getattr(value, name)) for name in value.__struct_fields__}
        return {name: each for name, each in found.items() if each is not None}
    return value


def _field(name: str, value: Any) -> Any:
    if name == "acquired_records":  # as many as other probes have produced by then
        return None
    if isinstance(value, UUID):
        return ("id" if value.int else None) if name in NAMES else None
    if name in CODES:
        return value or (0 if name == "error_code" else None)
    if name in NAMES or name.endswith(BITS):
        return value if value not in ("", -2147483648) else None
    if isinstance(value, list) and value:
        if name in ONLY_PRESENCE:
            return "some"
        rows = [outline(row) for row in value if not _is_internal(row)]
        structs = [row for row in rows if isinstance(row, dict)]
        return sorted(structs, key=msgspec.json.encode) or None
    return None


def _is_internal(row: Any) -> bool:
    name = getattr(row, "name", None) or getattr(row, "topic", None) or ""
    return isinstance(name, str) and name.startswith(INTERNAL)
