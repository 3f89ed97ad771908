"""What a handler is given beside the request: the node's services and who is asking."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from korvet.cluster.coordinators import Coordinators
from korvet.config.broker_config import Config
from korvet.config.dynamic import ConfigTable
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.keys import Keys
from korvet.log.append_batcher import AppendBatcher
from korvet.metrics import Metrics
from korvet.produce.unknown_producers import UnknownProducers
from korvet.store.async_store import AsyncStore
from korvet.store.notifications import Notifier
from korvet.store.replica_wait import ReplicaWait
from korvet.topics.table import TopicTable
from korvet.transactions.coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from korvet.cluster.registration import BrokerRegistration


T = TypeVar("T")


class NotReady:
    """What `Deferred.at_once` gives when there is more to wait for than its reply."""


NOT_READY = NotReady()


class Deferred(msgspec.Struct, Generic[T], frozen=True):
    """An answer that one reply is missing from. A task for each costs more than the answer itself:
    whoever has `reply` calls `at_once`, and awaits this only where that gives NOT_READY."""

    reply: "asyncio.Future[Any]"
    at_once: Callable[[], T | NotReady]
    slowly: Callable[[], Awaitable[T]]

    def __await__(self) -> Generator[Any, Any, T]:
        return self.slowly().__await__()


class CloseWithoutResponse(Exception):
    """What came was not taken, and its sender wants no answer: all that can tell it is the end of
    its connection. The message says why, for the log."""


class ApiRow(Protocol):
    """What ApiVersions needs to know of a row of the API table."""

    @property
    def key(self) -> int: ...
    @property
    def versions(self) -> tuple[int, int]: ...


class Services:
    """The long-lived parts of one broker process; every handler works on the same one."""

    def __init__(
        self,
        config: Config,
        store: AsyncStore,
        keys: Keys,
        topics: TopicTable,
        wake: Notifier,
        membership: "BrokerRegistration",
        apis: Sequence[ApiRow],
        metrics: Metrics,
    ) -> None:
        self.config = config
        self.settings: Settings = config.settings
        self.store = store
        self.keys = keys
        self.topics = topics
        self.notifier = wake
        self.registration = membership
        self.coordinators = Coordinators(membership)
        self.apis = apis
        self.metrics = metrics
        self.append_batcher = AppendBatcher(store, keys)
        self.unknown_producers = UnknownProducers()
        self.copies = ReplicaWait(store)
        self.transactions = TransactionCoordinator(store, keys, topics)
        self.topic_configs: TopicConfigs = config.topics
        self.configs = ConfigTable(store, keys)
        self.owed_bytes = 0
        """How much of answers to fetches is being read, or is not yet taken by its client."""
        self.memory: dict[str, Any] = {}
        """Hints that handlers keep between requests; losing them costs time, never truth."""

    async def refresh_configs(self) -> None:
        """Settings that were changed while brokers run, are in effect as Redis has them now."""
        if await self.configs.refresh():
            self.settings = self.configs.over(self.config.settings, self.registration.me.id)
            self.topic_configs = TopicConfigs(self.settings, self.config.patterns)
            self.topics.use(self.topic_configs)


def _nothing() -> None:
    """Nobody waits for this request to let the next one begin."""


class Context(msgspec.Struct, frozen=True):
    """One request's surroundings."""

    services: Services
    api_key: int
    version: int
    client_id: str | None
    client_host: str
    release: Callable[[], None] = _nothing
    """Called once order no longer matters: the connection's next request may begin."""

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
