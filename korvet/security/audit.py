"""The audit of decisions: a line in the log for each.

Rules
- Denied requests are always audited, allowed ones if `audit.log.allowed` is true.
- A record names the client, the operation and the resource. It has no data of the request.
- The same decision about the same client is audited once in REPEAT_S; the next record has the
  number of repeats.
"""

from time import monotonic

import msgspec

from korvet import logfmt
from korvet.config.values import Settings
from korvet.security.acl import Operation, ResourceType
from korvet.security.session import Session

MAX_KNOWN = 10_000
"""Max distinct decisions whose repeats are counted."""
REPEAT_S = 1.0
MAX_NAME = 500

log = logfmt.get("audit")


class Decision(msgspec.Struct, frozen=True):
    """A decision of the authorizer."""

    session: Session
    client_id: str | None
    api_key: int
    operation: Operation
    resource_type: ResourceType
    resource: str
    allowed: bool


class Audit:
    """Writes decisions to the log."""

    def __init__(self, settings: Settings) -> None:
        self.takes_allowed = settings.flag("audit.log.allowed")
        self._known: dict[tuple[object, ...], list[float]] = {}

    def record(self, decision: Decision) -> None:
        """Audit a decision."""
        repeats = self._repeats(decision)
        if repeats is None:
            return
        session, client_id = decision.session, decision.client_id
        fields: dict[str, object] = {
            "principal": str(session.principal)[:MAX_NAME],
            "listener": session.listener,
            "address": session.client_host,
            "client_id": client_id[:MAX_NAME] if client_id else None,
            "api_key": decision.api_key,
            "operation": decision.operation.name,
            "resource_type": decision.resource_type.name,
            "resource": decision.resource[:MAX_NAME],
            "repeats": repeats,
        }
        if decision.allowed:
            log.info("request allowed", **fields)
        else:
            log.warning("request denied", **fields)

    def _repeats(self, decision: Decision) -> int | None:
        """Return how often the decision was left out before, or None to leave it out now."""
        session = decision.session
        place = (
            session.principal,
            session.client_host,
            decision.operation,
            decision.resource_type,
            decision.resource,
            decision.allowed,
        )
        now = monotonic()
        row = self._known.get(place)
        if row is not None and now - row[0] < REPEAT_S:
            row[1] += 1
            return None
        if row is None and len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[place] = [now, 0]
        return int(row[1]) if row is not None else 0
