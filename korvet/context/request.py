"""The context of one request: the services of the broker, the API version and the client."""

from collections.abc import Callable

import msgspec

from korvet.base.errors import ErrorCode
from korvet.config.broker_config import Config
from korvet.config.values import Settings
from korvet.context.services import Services
from korvet.scripts.keys import Keys
from korvet.security.acl import CLUSTER_NAME, SUPPORTED_BITS, UNASKED, Operation, ResourceType
from korvet.security.audit import Decision
from korvet.security.session import Session
from korvet.store.async_store import AsyncStore
from korvet.store.notifications import Notifier
from korvet.topics.lifecycle import Refused
from korvet.topics.table import TopicTable
from korvet.transactions.add_partitions import Producer
from korvet.transactions.coordinator import TransactionCoordinator

MAX_NOTED = 100
"""Max transactional ids noted for one connection; one more clears them."""


def _release_nothing() -> None:
    """Default of `release`: no later request waits for this one."""


class Context(msgspec.Struct, frozen=True):
    """Context of one request."""

    services: Services
    api_key: int
    version: int
    client_id: str | None
    session: Session
    release: Callable[[], None] = _release_nothing
    """Lets the connection's next request begin: the handler needs no order any more."""

    @property
    def client_host(self) -> str:
        return self.session.client_host

    async def charge_mutation(self, partitions: int, *, strict_since: int) -> None:
        """Charge created or deleted partitions to the client's controller_mutation_rate.

        Raises Refused if the client is over it, from request version `strict_since` on, and says
        how long to wait. An older client is never refused, but waits. KIP-599.
        """
        strict = self.version >= strict_since
        wait_ms = await self._charge_mutation(partitions, strict=strict)
        self.session.mutation_ms = max(self.session.mutation_ms, wait_ms)
        if wait_ms and strict:
            raise _used_up(wait_ms)

    async def charge_creation(self, partitions: int) -> None:
        """Charge partitions that another request than CreateTopics creates.

        Raises Refused if the client is over its controller_mutation_rate. It does not wait, since
        its connection serves topics and groups that exist.
        """
        wait_ms = await self._charge_mutation(partitions, strict=True)
        if wait_ms:
            raise _used_up(wait_ms)

    async def _charge_mutation(self, partitions: int, *, strict: bool) -> int:
        return await self.services.quotas.charge_mutation(
            self.session, self.client_id, partitions, strict=strict
        )

    def note_transaction(self, producer: Producer, number: int) -> None:
        """Note the transaction to which the client has added members on this connection."""
        noted = self.session.transactions
        if len(noted) >= MAX_NOTED:
            noted.clear()
        noted[hash(producer)] = number

    @property
    def store(self) -> AsyncStore:
        return self.services.store

    @property
    def keys(self) -> Keys:
        return self.services.keys

    @property
    def topics(self) -> TopicTable:
        return self.services.topics

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.services.transactions

    @property
    def notifier(self) -> Notifier:
        return self.services.notifier

    @property
    def settings(self) -> Settings:
        return self.services.settings

    @property
    def config(self) -> Config:
        return self.services.config

    def allows(
        self, operation: Operation, kind: ResourceType, name: str, *, audit: bool = True
    ) -> bool:
        """Return whether the client may do the operation on the resource.

        `audit` is False if a denial is no error: another right may suffice, or a filter leaves out
        what the client may not see. Raises RulesUnreadable.
        """
        authorizer = self.services.authorizer
        return not authorizer.enabled or authorizer.allows(
            self.session,
            operation,
            kind,
            name,
            api_key=self.api_key,
            client_id=self.client_id,
            audit=audit,
        )

    def allows_on_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether there is a resource of the type on which the client may do this.

        A denial is not audited. Raises RulesUnreadable.
        """
        authorizer = self.services.authorizer
        allowed = authorizer.allows_on_any(self.session, operation, kind)
        if allowed and authorizer.audits_all:
            self.services.audit.record(
                Decision(self.session, self.client_id, self.api_key, operation, kind, "*", allowed)
            )
        return allowed

    def may_describe(self, topic: str, *, audit: bool = True) -> bool:
        """Return whether the client may describe a topic of that name. Raises RulesUnreadable."""
        return self.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic, audit=audit)

    def may_create(self, topic: str) -> bool:
        """Return whether the client may create a topic of that name. Raises RulesUnreadable."""
        return self.allows(
            Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, audit=False
        ) or self.allows(Operation.CREATE, ResourceType.TOPIC, topic)

    def authorized_operations(self, kind: ResourceType, name: str, *, asked: bool = True) -> int:
        """Return the operations that the client may do on the resource, as a bit field.

        0 if the client may not describe the resource, as in Kafka; UNASKED if not `asked` for.
        """
        if not asked:
            return UNASKED
        found = self.services.authorizer.operations(self.session, kind, name)
        return found & SUPPORTED_BITS[kind] if found >> Operation.DESCRIBE & 1 else 0


def _used_up(wait_ms: int) -> Refused:
    return Refused(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"The quota controller_mutation_rate is used up: try again in {wait_ms} ms.",
    )
