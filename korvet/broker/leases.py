"""Leases: work on shared data runs in one broker process at a time."""

import os
import uuid

from korvet.context import Services
from korvet.scripts import broker


class Leases:
    """The leases of one broker process, in Redis. Those of a process that died expire."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.holder = f"{services.config.node_id}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    async def hold(self, name: str, seconds: float) -> bool:
        """Acquire or renew the lease for that long; return whether this process holds it."""
        ttl_ms = max(1, int(seconds * 1000))
        reply = await self._services.store.run(
            broker.lease(self._services.keys, name=name, holder=self.holder, ttl_ms=ttl_ms)
        )
        return reply.held == 1
