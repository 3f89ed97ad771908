"""The Redis groups (XREADGROUP) that follow a group's committed offsets."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from korvet.base import logfmt
from korvet.base.bounded import MAX_CONCURRENT
from korvet.groups.offset_commit import Row, parse_field
from korvet.scripts.call import Call
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError, StoreUnavailable

logger = logfmt.get("groups")


class RedisGroups:
    """Redis groups, one per committed stream, under the consumer group's name."""

    def __init__(self, store: AsyncStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def seek(self, group_id: str, rows: Iterable[Row], *, move: bool = True) -> None:
        """Move the Redis groups to the committed offsets. A failure is only logged: the offsets are
        committed, and the next commit moves the Redis group."""
        if not group_id:
            return
        calls = (
            self._keys.partition(topic, partition, topic_id).group_seek(
                group=group_id, offset=offset, move=int(move)
            )
            for topic, partition, offset, _, topic_id, _ in rows
        )
        try:
            await self._run_each(calls)
        except StoreError as error:
            logger.warning("Redis group seek failed", group=group_id, reason=str(error))

    async def destroy(self, group_id: str, fields: Iterable[bytes]) -> None:
        """Destroy the Redis groups on the streams of deleted commits."""
        partitions = [found for found in map(parse_field, fields) if found is not None]
        if group_id and partitions:
            await self._run_each(
                self._keys.partition(topic, partition).group_destroy(group=group_id)
                for topic, partition in partitions
            )

    async def _run_each(self, calls: Iterable[Call[Any]]) -> None:
        """Run all calls, some at a time, each until it has no `more`. The first failure is raised
        at the end, StoreUnavailable at once: every further call would wait for Redis."""
        todo, failed = iter(calls), None
        while some := list(islice(todo, MAX_CONCURRENT)):
            try:
                while some:
                    replies = await self._store.run_many(some)
                    some = [
                        call
                        for call, reply in zip(some, replies, strict=True)
                        if getattr(reply, "more", 0)
                    ]
            except StoreUnavailable:
                raise
            except StoreError as error:
                failed = failed or error
        if failed is not None:
            raise failed
