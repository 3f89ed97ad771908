"""What a handler is given beside the request: the node's services and who is asking."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from korvet.beginnings import Beginnings
from korvet.config import Config
from korvet.config_table import ConfigTable
from korvet.gathering import Gatherer
from korvet.keys import Keys
from korvet.metrics import Metrics
from korvet.naming import Coordinators
from korvet.settings.values import Settings
from korvet.store.aio import AsyncStore
from korvet.store.copies import Copies
from korvet.store.wake import Wake
from korvet.topic_config import TopicConfigs
from korvet.topics import TopicTable
from korvet.transactions import Transactions

if TYPE_CHECKING:
    from korvet.membership import Membership


T = TypeVar("T")


class Later:
    """What `Soon.at_once` gives when there is more to wait for than its reply."""


LATER = Later()


class Soon(msgspec.Struct, Generic[T], frozen=True):
    """An answer that one reply is missing from. A task for each costs more than the answer itself:
    whoever has `reply` calls `at_once`, and awaits this only where that gives LATER."""

    reply: "asyncio.Future[Any]"
    at_once: Callable[[], T | Later]
    slowly: Callable[[], Awaitable[T]]

    def __await__(self) -> Generator[Any, Any, T]:
        return self.slowly().__await__()


class Unanswered(Exception):
    """What came was not taken, and its sender wants no answer: all that can tell it is the end of
    its connection. The message says why, for the log."""


class ApiRow(Protocol):
    """What ApiVersions needs to know of a row of the API table."""

    @property
    def key(self) -> int: ...
    @property
    def versions(self) -> tuple[int, int]: ...


class Node:
    """The long-lived parts of one broker process; every handler works on the same one."""

    def __init__(
        self,
        config: Config,
        store: AsyncStore,
        keys: Keys,
        topics: TopicTable,
        wake: Wake,
        membership: "Membership",
        apis: Sequence[ApiRow],
        metrics: Metrics,
    ) -> None:
        self.config = config
        self.settings: Settings = config.settings
        self.store = store
        self.keys = keys
        self.topics = topics
        self.wake = wake
        self.membership = membership
        self.coordinators = Coordinators(membership)
        self.apis = apis
        self.metrics = metrics
        self.gatherer = Gatherer(store, keys)
        self.beginnings = Beginnings()
        self.copies = Copies(store)
        self.transactions = Transactions(store, keys, topics)
        self.topic_configs: TopicConfigs = config.topics
        self.configs = ConfigTable(store, keys)
        self.owed_bytes = 0
        """How much of answers to fetches is being read, or is not yet taken by its client."""
        self.memory: dict[str, Any] = {}
        """Hints that handlers keep between requests; losing them costs time, never truth."""

    async def refresh_configs(self) -> None:
        """Settings that were changed while brokers run, are in effect as Redis has them now."""
        if await self.configs.refresh():
            self.settings = self.configs.over(self.config.settings, self.membership.me.id)
            self.topic_configs = TopicConfigs(self.settings, self.config.patterns)
            self.topics.use(self.topic_configs)


def _nothing() -> None:
    """Nobody waits for this request to let the next one begin."""


class Context(msgspec.Struct, frozen=True):
    """One request's surroundings."""

    node: Node
    api_key: int
    version: int
    client_id: str | None
    client_host: str
    release: Callable[[], None] = _nothing
    """Called once order no longer matters: the connection's next request may begin."""

    @property
    def store(self) -> AsyncStore:
        return self.node.store

    @property
    def keys(self) -> Keys:
        return self.node.keys

    @property
    def topics(self) -> TopicTable:
        return self.node.topics

    @property
    def transactions(self) -> Transactions:
        return self.node.transactions

    @property
    def wake(self) -> Wake:
        return self.node.wake

    @property
    def settings(self) -> Settings:
        return self.node.settings

    @property
    def config(self) -> Config:
        return self.node.config
