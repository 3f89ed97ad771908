"""What the everyday commands work on: the store, the keys and the topics of one namespace."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

from korvet.cli import redis_target
from korvet.config.broker_config import StartError
from korvet.config.dynamic import ConfigTable
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.keys import Keys
from korvet.log.reader import LogReader
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic, TopicTable

T = TypeVar("T")
NO_BROKER = -1
"""Whose own settings there are none of."""


class Cluster(NamedTuple):
    """One Redis as Korvet sees it; `settings` are as they were changed for all brokers."""

    url: str
    store: AsyncStore
    keys: Keys
    settings: Settings
    defaults: TopicConfigs
    topics: TopicTable
    reader: LogReader

    async def topic(self, name: str) -> Topic:
        """The topic, or a StartError that names those there are."""
        found = await self.topics.get(name)
        if found is None:
            there = ", ".join(topic.name for topic in (await self.topics.all())[:10])
            raise StartError(f"There is no topic {name!r}; there are: {there or 'none'}.")
        return found


def on_cluster(
    work: Callable[[Cluster], Awaitable[T]],
    redis: str | None,
    data_dir: str | None,
    namespace: str | None,
    static: Mapping[str, str] | None = None,
) -> T:
    """What `work` returns, run on the Redis that those options mean."""

    async def connected(url: str) -> T:
        async with await AsyncStore.connect(url, client_name="korvet-cli") as store:
            keys = Keys(namespace or "korvet")
            changed = ConfigTable(store, keys)
            await changed.refresh()
            settings = changed.over(Settings(static), NO_BROKER)
            defaults = TopicConfigs(settings)
            cluster = Cluster(
                url,
                store,
                keys,
                settings,
                defaults,
                TopicTable(store, keys, defaults),
                LogReader(store, keys),
            )
            return await work(cluster)

    with redis_target.url(redis, data_dir) as url:
        return asyncio.run(connected(url))
