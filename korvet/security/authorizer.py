"""The authorizer: decides by a cached copy of the ACL rules in Redis.

Rules
- Every process follows the channel of the rules and checks their version at least every 500 ms. So
  a change is in effect everywhere within a second.
- If the rules cannot be read for TRUST_S, their copy is no longer used: every request that needs a
  right is refused with a retriable error until they can be read.
- A decision is cached until the rules change. It holds all operations of one client on one
  resource, so a Produce request looks up one number.
"""

from collections.abc import Iterable, Sequence
from math import inf
from time import monotonic

import msgspec

from korvet.base import logfmt
from korvet.base.bounded import ByteBounded
from korvet.config.setting import ConfigError
from korvet.config.values import Settings
from korvet.scripts.keys import Keys
from korvet.security.acl import (
    EVERY_OPERATION,
    Operation,
    ResourceType,
    Rule,
    RuleFilter,
    encode_rule,
    read_rules,
)
from korvet.security.audit import Audit, Decision
from korvet.security.rule_index import RuleIndex
from korvet.security.session import Principal, Session
from korvet.store.calls import AsyncCalls
from korvet.store.errors import StoreUnavailable

CHECK_S = 0.5
"""Max seconds between two checks of the rules' version."""
TRUST_S = 30.0
"""Seconds for which the last copy of the rules is used while they cannot be read."""
MAX_DECISION_BYTES = 16 << 20
"""Memory of cached decisions."""
VERSION_FIELD = b":version"

log = logfmt.get("acls")

Decisions = ByteBounded[tuple[str, str, int, str], int]
"""Operations by principal, host, type and name of the resource."""


class RulesUnreadable(StoreUnavailable):
    """The rules could not be read for TRUST_S: no request that needs a right is served."""

    def __init__(self) -> None:
        super().__init__("the ACL rules cannot be read: Redis is unavailable")


class Authorizer:
    """Decides what clients may do. Without `authorizer.class.name` everything is allowed."""

    def __init__(self, store: AsyncCalls, keys: Keys, settings: Settings, audit: Audit) -> None:
        self._store = store
        self._keys = keys
        self.enabled = bool(settings.text("authorizer.class.name"))
        self.audit = audit
        self._super_users = super_users(settings.text("super.users"))
        everyone = settings.flag("allow.everyone.if.no.acl.found")
        self._no_rule = EVERY_OPERATION if everyone else 0
        self.version: bytes | None = None
        """The version of the rules in use, None before they are read."""
        self._rules: list[Rule] = []
        self._trusted_until = 0.0 if self.enabled else inf
        self._use([])

    def _use(self, rules: list[Rule]) -> None:
        self._rules = rules
        self._index = RuleIndex(rules)
        self.decisions = Decisions("authorizer decisions", MAX_DECISION_BYTES)
        """The cached decisions; another cache after every change of the rules."""

    async def refresh(self) -> None:
        """Read the rules if their version changed. Raises StoreError."""
        if not self.enabled:
            return
        asked = monotonic()
        key = self._keys.acls()
        version = await self._store.command("HGET", key, VERSION_FIELD) or b"0"
        if version != self.version:
            flat = await self._store.command("HGETALL", key)
            rows = dict(zip(flat[::2], flat[1::2], strict=True))
            version = rows.pop(VERSION_FIELD, b"0")
            self._use(read_rules(rows))
            self.version = version
        self._trusted_until = asked + TRUST_S

    def is_current(self, decisions: Decisions) -> bool:
        """Return whether these cached decisions are still in effect."""
        return decisions is self.decisions and monotonic() < self._trusted_until

    @property
    def audits_all(self) -> bool:
        """True if each allowed request is audited, so that none may skip the check."""
        return self.enabled and self.audit.takes_allowed

    @property
    def readable(self) -> bool:
        """True if the rules could be read within TRUST_S."""
        return monotonic() < self._trusted_until

    def operations(self, session: Session, kind: ResourceType, name: str) -> int:
        """Return the operations that the client may do on the resource, as a bit field.

        Raises RulesUnreadable.
        """
        if not self.enabled:
            return EVERY_OPERATION
        if monotonic() >= self._trusted_until:
            raise RulesUnreadable
        cache_key = (str(session.principal), session.client_host, int(kind), name)
        found = self.decisions.get(cache_key)
        if found is None:
            found = self.decisions.put(cache_key, self._decide(session, kind, name))
        return found

    def _decide(self, session: Session, kind: ResourceType, name: str) -> int:
        if session.principal in self._super_users:
            return EVERY_OPERATION
        principal, host = str(session.principal), session.client_host
        return self._index.decide(principal, host, kind, name, self._no_rule)

    def allows_on_any(self, session: Session, operation: Operation, kind: ResourceType) -> bool:
        """Return whether there is a resource of the type on which the client may do this.

        Raises RulesUnreadable.
        """
        if self.operations(session, kind, "any resource") >> operation & 1:
            return True
        client = (str(session.principal), session.client_host)
        cache_key = (*client, -kind, operation.name)
        found = self.decisions.get(cache_key)
        if found is None:
            found = self.decisions.put(
                cache_key, self._index.allows_on_any(*client, kind, operation)
            )
        return bool(found)

    def allows(
        self,
        session: Session,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        api_key: int = -1,
        client_id: str | None = None,
        audit: bool = True,
    ) -> bool:
        """Return whether the client may do the operation on the resource; audit the decision.

        `audit` is False if a denial is no error: another right may suffice, or a filter leaves out
        what the client may not see. Raises RulesUnreadable.
        """
        if not self.enabled:
            return True
        allowed = bool(self.operations(session, kind, name) >> operation & 1)
        if self.audit.takes_allowed if allowed else audit:
            self.audit.record(Decision(session, client_id, api_key, operation, kind, name, allowed))
        return allowed

    def find(self, filter_: RuleFilter) -> list[Rule]:
        """Return the rules that the filter selects, in a stable order."""
        return sorted(filter(filter_.matches, self._rules), key=msgspec.structs.astuple)

    async def create(self, rules: Sequence[Rule]) -> None:
        """Add rules. They are in effect on this broker at return. Raises StoreError."""
        await self._store.run(self._keys.acl_create([encode_rule(rule) for rule in rules]))
        await self.refresh()

    async def delete(self, rules: Iterable[Rule]) -> None:
        """Delete rules; one that does not exist is no error. Raises StoreError."""
        await self._store.run(self._keys.acl_delete([encode_rule(rule) for rule in rules]))
        await self.refresh()


def super_users(text: str) -> frozenset[Principal]:
    """Return the principals of a semicolon-separated list. Raises ConfigError."""
    try:
        return frozenset(Principal.parse(part.strip()) for part in text.split(";") if part.strip())
    except ValueError as error:
        raise ConfigError(f"super.users: {error}.") from None
