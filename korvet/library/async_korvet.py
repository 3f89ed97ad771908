"""The log without a broker, for asyncio.

Every change goes through the scripts and the code that a broker uses; nothing is decided here.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Self

from korvet.admin.alter_configs import ConfigAdmin
from korvet.admin.config_edits import DELETE, SET, Change, ConfigResourceType, Edit
from korvet.base.errors import ErrorCode
from korvet.config.dynamic import ConfigTable, DynamicBrokerConfig
from korvet.config.setting import LONG_MAX
from korvet.config.values import Settings
from korvet.groups.lag import list_lags
from korvet.groups.share_group import ShareOffsets
from korvet.library.session import NO_BROKER, check, check_partition, refusals
from korvet.library.sharing import ShareCalls
from korvet.library.tables import TableCalls
from korvet.library.values import GroupInfo, GroupOffset, KorvetError
from korvet.log.accept_server import accept_by
from korvet.log.position import Position
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.redis_py import ClientStore, LibraryStore


class GroupCalls(ShareCalls):
    """List, configure and delete groups; read, commit and reset what they committed."""

    async def groups(self) -> list[GroupInfo]:
        """List the consumer groups by name."""
        found = []
        for name in sorted(await self.coordinator.registry.list_all()):
            kind, state, protocol, size = await self.store.command(
                "HMGET", self.keys.group(name).group, "type", "state", "protocol_type", "size"
            )
            if kind is not None:
                words = (kind.decode(), state.decode(), (protocol or b"").decode())
                found.append(GroupInfo(name, *words, int(size or 0)))
        return found

    async def committed(self, group: str) -> list[GroupOffset]:
        """Return what a group has committed, by topic and partition."""
        return [row for row in await self.lags(group) if row.offset >= 0]

    async def lags(self, group: str) -> list[GroupOffset]:
        """Return what a group has to read, by topic and partition.

        A partition that is assigned and has no commit has the lag of all its records.
        """
        await self.refresh()
        rows = await list_lags(self.node, group)
        return [
            GroupOffset(
                topic=row.topic,
                partition=row.partition,
                offset=row.commit.offset,
                metadata=row.commit.metadata,
                log_end_offset=row.end,
                lag=row.lag,
                lag_ms=row.lag_ms,
                age_ms=row.age_ms,
            )
            for row in rows
        ]

    async def commit(
        self, group: str, offsets: Mapping[tuple[str, int], int], metadata: str = ""
    ) -> None:
        """Commit offsets by (topic, partition) for a group that has no members."""
        rows = []
        for (topic, partition), offset in offsets.items():
            found = await self.find_topic(topic)
            check_partition(found, partition)
            if not 0 <= offset <= LONG_MAX:
                reason = f"A group cannot commit offset {offset} of partition {partition}."
                raise KorvetError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
            rows.append((topic, partition, offset, -1, found.id, metadata))
        replies = await self.coordinator.run_rows(
            group,
            rows,
            lambda some, is_registered: self.keys.group(group).commit(
                self.keys.commit_rows(some),
                member="",
                instance="",
                generation=-1,
                allow_member_epoch=1,
                is_registered=is_registered,
                retention_ms=-1,
            ),
        )
        error = replies[-1].error
        if error == ErrorCode.GROUP_ID_NOT_FOUND:
            reason = f"{group!r} is a share group, which commits no offsets."
            raise KorvetError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        check(error, f"Group {group!r} has members: stop them first")
        await self.coordinator.redis_groups.seek(group, rows)

    async def reset(self, group: str, topic: str, position: Position) -> dict[int, int]:
        """Commit the offsets at a position in every partition; returns them by partition."""
        found = await self.find_topic(topic)
        offsets = {
            number: await self.find_offset(topic, number, position)
            for number in range(found.partitions)
        }
        await self.commit(group, {(topic, number): at for number, at in offsets.items()})
        return offsets

    async def configure_group(self, group: str, configs: Mapping[str, str | None]) -> None:
        """Change configs of a group, such as share.auto.offset.reset; None: the default."""
        table = ConfigTable(self.store, self.keys)
        config = DynamicBrokerConfig(
            table, self.settings, self.topic_configs, (), NO_BROKER, lambda _: None
        )
        edits = [
            Edit(name, value, DELETE if value is None else SET) for name, value in configs.items()
        ]
        change = Change(ConfigResourceType.GROUP, group, edits, replace=False, validate_only=False)
        with refusals():
            await ConfigAdmin(self.node, config, NO_BROKER).alter(change)
        self.forget_settings()

    async def delete_group(self, group: str) -> None:
        """Delete a group that has no members, with its committed offsets."""
        error = await ShareOffsets(self.node, self.coordinator).delete_group(group)
        if error is ErrorCode.GROUP_ID_NOT_FOUND:
            raise KorvetError(error, f"There is no group {group!r}.")
        check(error, f"Group {group!r} has members: stop them first")


class AsyncKorvet(GroupCalls, TableCalls):
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
        if store is None:
            store = ClientStore(client)
            store.accept_servers(accept_by(Keys(namespace), partial(ClientStore, client)))
        super().__init__(store, namespace, settings)

    @classmethod
    async def connect(
        cls, url: str, *, namespace: str = "korvet", settings: Mapping[str, str] | None = None
    ) -> Self:
        """Connect to a Redis URL, which may name Sentinels or a cluster."""
        connect = partial(AsyncStore.connect, url, client_name="korvet-library")
        store = await connect(accept_server=accept_by(Keys(namespace), connect))
        log = cls(namespace=namespace, settings=settings, store=store)
        log.url = url
        return log

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.store.close()
