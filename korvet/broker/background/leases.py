"""Leases: work on shared data runs in one broker process at a time."""

import os
import uuid

from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore


class Leases:
    """The leases of one broker process, in Redis. Those of a process that died expire."""

    def __init__(self, store: AsyncStore, keys: Keys, node_id: int) -> None:
        self._store = store
        self._keys = keys
        self.holder = f"{node_id}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    async def hold(self, name: str, seconds: float) -> bool:
        """Acquire or renew the lease for that long; return whether this process holds it."""
        ttl_ms = max(1, int(seconds * 1000))
        call = self._keys.broker_lease(name=name, holder=self.holder, ttl_ms=ttl_ms)
        return (await self._store.run(call)).held == 1

    async def release(self, name: str) -> None:
        """End the lease, if this process holds it, so that another can take over at once."""
        await self.hold(name, 0.001)
