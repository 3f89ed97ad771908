"""The log without a broker, for asyncio.

Every change goes through the scripts and the code that a broker uses; nothing is decided here.
"""

from collections.abc import Mapping
from typing import Any, Self

from korvet.config.values import Settings
from korvet.library.group_calls import GroupCalls
from korvet.store.async_store import AsyncStore
from korvet.store.redis_py import ClientStore, LibraryStore


class AsyncKorvet(GroupCalls):
    """The log of one Redis, for asyncio.

    `client` is a `redis.asyncio.Redis`; its address and credentials are used on connections of the
    log's own. For a Redis Cluster or Sentinels use `await AsyncKorvet.connect(url)`.

    >>> async def count(url):
    ...     async with await AsyncKorvet.connect(url) as log:
    ...         await log.create_topic("clicks", partitions=1)
    ...         await log.produce("clicks", [Record(b"a"), Record(b"b")])
    ...         return [record.value async for record in log.records("clicks", 0)]
    >>> asyncio.run(count(redis_url))
    [b'a', b'b']
    """

    def __init__(
        self,
        client: Any = None,
        *,
        namespace: str = "korvet",
        settings: Mapping[str, str] | Settings | None = None,
        store: LibraryStore | None = None,
    ) -> None:
        super().__init__(ClientStore(client) if store is None else store, namespace, settings)

    @classmethod
    async def connect(
        cls, url: str, *, namespace: str = "korvet", settings: Mapping[str, str] | None = None
    ) -> Self:
        """Connect to a Redis URL, which may name Sentinels or a cluster."""
        store = await AsyncStore.connect(url, client_name="korvet-library")
        return cls(namespace=namespace, settings=settings, store=store)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.store.close()
