"""Members of consumer groups that HTTP clients use: the instances of Confluent's REST proxy.

Rules
- An instance is a member of a KIP-848 group, in this process. It may be lost: its client then gets
  404 with code 40403, and creates one again. What it has committed is in Redis.
- An instance ends, and leaves its group, after IDLE_S without a call. Until then the console sends
  its heartbeats.
- It belongs to its user. Rights are checked with each call, as those of the Kafka request.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from korvet.base import logfmt
from korvet.library.consuming import AsyncConsumer
from korvet.library.values import KorvetError, StoredRecord
from korvet.store.errors import StoreError

MAX_INSTANCES = 50
IDLE_S = 300.0
BEAT_S = 1.0
"""Seconds between two looks at heartbeats that are due."""
log = logfmt.get("console")


class Instance:
    """A member of a group, once it has subscribed."""

    def __init__(self, user: str, *, binary: bool, commits: bool, reset: str) -> None:
        self.user = user
        self.binary = binary
        self.commits = commits
        """Whether a read commits what the one before it has returned."""
        self.reset = reset
        self.is_delivered = True
        """False from a read until its response is sent: what failed is read again."""
        self.topics: Sequence[str] = ()
        self.consumer: AsyncConsumer | None = None
        self.used_at = monotonic()
        self.lock = asyncio.Lock()

    async def take(self, timeout_s: float, max_bytes: int) -> list[StoredRecord]:
        """Return the next records, as soon as there are any."""
        consumer = self.consumer
        assert consumer is not None, "it has subscribed"
        await self.commit_read()
        self.is_delivered = False
        rows: list[StoredRecord] = []
        size = 0
        while size < max_bytes and (record := await consumer.next(0 if rows else timeout_s)):
            rows.append(record)
            size += 100 + len(record.key or b"") + len(record.value or b"")
        return rows

    async def commit_read(self) -> None:
        """Commit what was returned, if the instance commits by itself."""
        if self.commits and self.is_delivered and self.consumer is not None:
            with suppress(KorvetError):  # another member has them, and they are read again
                await self.consumer.commit()

    async def leave(self) -> None:
        """Leave the group, also if Redis is away: the member then expires."""
        consumer, self.consumer, self.topics = self.consumer, None, ()
        if consumer is not None:
            with suppress(KorvetError, StoreError):
                await consumer.close()


class Consumers:
    """The instances of this process, by group and name."""

    def __init__(self) -> None:
        self.instances: dict[tuple[str, str], Instance] = {}

    async def run(self) -> None:
        """Send the heartbeats that are due, and end what is idle, until cancelled."""
        while True:
            await asyncio.sleep(BEAT_S)
            for key, each in list(self.instances.items()):
                if each.lock.locked():
                    continue
                async with each.lock:
                    await self._beat(key, each)

    async def _beat(self, key: tuple[str, str], instance: Instance) -> None:
        if monotonic() - instance.used_at > IDLE_S:
            self.instances.pop(key, None)
            await instance.leave()
        elif instance.consumer is not None:
            try:
                await instance.consumer.heartbeat()
            except (KorvetError, StoreError) as error:
                log.warning("heartbeat of a consumer failed", group=key[0], error=error)

    async def close(self) -> None:
        """Leave the groups."""
        for each in self.instances.values():
            await each.leave()
