"""The audit of decisions: a line in the log and a record in `audit.topic` for each.

Rules
- Denied requests are always audited, allowed ones if `audit.log.allowed` or `audit.topic.allowed`
  is true. The topic has failed authentications too; the log has a line for each already.
- An event names the client, the operation and the resource. It has no data of the request.
- The same event about the same client is audited once in REPEAT_S; the next event has the
  number of repeats. So a client that reads `audit.topic` does not cause events without end.
- A client has MAX_PER_CLIENT events in REPEAT_S; its next event has the number of those left out. A
  request may name 100,000 topics: other clients' events are not lost for it.
- Events wait in a queue of limited size, which a background task appends to the topic. An event
  that does not fit is dropped and counted: no request waits for its audit.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from time import monotonic

import msgspec

from korvet.base import logfmt
from korvet.config.values import Settings
from korvet.security.acl import Operation, ResourceType
from korvet.security.session import Session

MAX_KNOWN = 10_000
"""Max distinct events whose repeats are counted."""
MAX_PER_CLIENT = 100
REPEAT_S = 1.0
MAX_NAME = 500
MAX_QUEUED_BYTES = 4 << 20
"""Max bytes of events that wait for their append to the audit topic."""

log = logfmt.get("audit")
_encode = msgspec.json.Encoder().encode


class Decision(msgspec.Struct, frozen=True):
    """A decision of the authorizer."""

    session: Session
    client_id: str | None
    api_key: int
    operation: Operation
    resource_type: ResourceType
    resource: str
    allowed: bool


class AuditQueue:
    """Encoded events that wait for their append to the audit topic."""

    def __init__(self) -> None:
        self._events: deque[bytes] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self.dropped = 0
        """Events dropped because the queue was full."""

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Mapping[str, object]) -> None:
        """Add an event, or count it as dropped if the queue is full."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        encoded = _encode({"time": now, **event})
        if self._bytes + len(encoded) > MAX_QUEUED_BYTES:
            self.dropped += 1
            return
        self._events.append(encoded)
        self._bytes += len(encoded)
        self._filled.set()

    async def wait(self) -> None:
        """Wait for an event."""
        await self._filled.wait()

    def first(self, count: int) -> list[bytes]:
        """Return up to `count` events, the oldest first. They stay in the queue."""
        return list(islice(self._events, count))

    def remove(self, count: int) -> None:
        """Remove the oldest events."""
        for _ in range(count):
            self._bytes -= len(self._events.popleft())
        if not self._events:
            self._filled.clear()


class Audit:
    """Writes decisions to the log, and to the queue of the audit topic if there is one."""

    def __init__(self, settings: Settings, api_names: Mapping[int, str]) -> None:
        self._api_names = api_names
        self._logs_allowed = settings.flag("audit.log.allowed")
        self.topic = settings.text("audit.topic")
        self.queue = AuditQueue() if self.topic else None
        self._sends_allowed = bool(self.topic) and settings.flag("audit.topic.allowed")
        self.takes_allowed = self._logs_allowed or self._sends_allowed
        self._known: dict[int, list[float]] = {}
        """The hashes of recent events, with their times and repeats: names may be long."""
        self._shares: dict[int, list[float]] = {}
        """The hashes of clients, with the time of a share, its events, and those left out."""

    def record(self, decision: Decision) -> None:
        """Audit a decision."""
        repeats = self._repeats(*msgspec.structs.astuple(decision))
        left_out = None if repeats is None else self._left_out(decision.session)
        if left_out is None:
            return
        fields: dict[str, object] = {
            **_client(decision.session, decision.client_id),
            "api": self._api_names.get(decision.api_key),
            "operation": decision.operation.name,
            "resource_type": decision.resource_type.name,
            "resource": decision.resource[:MAX_NAME],
            "repeats": repeats,
        }
        if left_out:
            fields["left_out"] = left_out
        if not decision.allowed:
            log.warning("request denied", **fields)
        elif self._logs_allowed:
            log.info("request allowed", **fields)
        if self.queue is not None and (self._sends_allowed or not decision.allowed):
            self.queue.put({"event": "authorization", **fields, "allowed": decision.allowed})

    def authentication(
        self, session: Session, client_id: str | None, mechanism: str, failure: str, user: str
    ) -> None:
        """Audit an authentication; `failure` is empty if it succeeded.

        `user` is empty unless the client named a user that exists: it may have sent its password.
        """
        if self.queue is None or not (failure or self._sends_allowed):
            return
        repeats = self._repeats(session, client_id, mechanism, failure, user)
        if repeats is None:
            return
        self.queue.put(
            {
                "event": "authentication",
                **_client(session, client_id),
                "principal": f"User:{user}"[:MAX_NAME] if user else None,
                "mechanism": mechanism or None,
                "reason": failure or None,
                "repeats": repeats,
                "allowed": not failure,
            }
        )

    def _repeats(self, session: Session, *about: object) -> int | None:
        """Return how often the event was left out before, or None to leave it out now."""
        event = hash((session.principal, session.client_host, session.listener, *about))
        now = monotonic()
        row = self._known.get(event)
        if row is not None and now - row[0] < REPEAT_S:
            row[1] += 1
            return None
        if row is None and len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[event] = [now, 0]
        return int(row[1]) if row is not None else 0

    def _left_out(self, session: Session) -> int | None:
        """Return how many events of the client were left out, or None to leave out this one."""
        client, now = hash((session.principal, session.client_host)), monotonic()
        row = self._shares.get(client)
        if row is not None and now - row[0] < REPEAT_S and row[1] >= MAX_PER_CLIENT:
            row[2] += 1
            return None
        if row is None or now - row[0] >= REPEAT_S:
            if row is None and len(self._shares) >= MAX_KNOWN:
                self._shares.clear()
            self._shares[client] = row = [now, 0, 0 if row is None else row[2]]
        row[1] += 1
        left_out, row[2] = int(row[2]), 0
        return left_out


def _client(session: Session, client_id: str | None) -> dict[str, object]:
    return {
        "principal": str(session.principal)[:MAX_NAME],
        "listener": session.listener,
        "address": session.client_host,
        "client_id": client_id[:MAX_NAME] if client_id else None,
    }
