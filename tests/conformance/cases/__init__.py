"""The cases, in a module for each subject. Importing this package fills `asking.CASES`."""

from tests.conformance.cases import (
    admin,
    configs,
    fetch_sessions,
    fetched,
    groups,
    idempotence,
    joining,
    membership,
    offsets,
    reading,
    refused,
    shares,
    sharing,
    static,
    streams,
    topics,
)

__all__ = [
    "admin",
    "configs",
    "fetch_sessions",
    "fetched",
    "groups",
    "idempotence",
    "joining",
    "membership",
    "offsets",
    "reading",
    "refused",
    "shares",
    "sharing",
    "static",
    "streams",
    "topics",
]
