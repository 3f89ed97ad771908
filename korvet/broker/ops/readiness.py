"""Readiness check for /readyz: Redis answers, takes writes and has the scripts."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import anyio

from korvet.base import logfmt
from korvet.base.bounded import chunks
from korvet.broker.ops.checks import losses, unkept
from korvet.scripts import bundle, lock
from korvet.store.async_store import AsyncStore, all_of
from korvet.store.errors import StoreError
from korvet.store.handshake import why_writes_are_refused
from korvet.topics.lifecycle import syncing_of
from korvet.topics.table import TopicTable

log = logfmt.get("broker.ops")
TIMEOUT_S = 2.0
LOADING_S = 2.9
"""With TIMEOUT_S less than what a request of the ops port may take; the next one continues."""
LOADED_TOGETHER = 10
"""Scripts that Redis compiles one after another: it serves nothing else for some milliseconds."""


@dataclass(eq=False, repr=False)
class Readiness:
    """Checks whether a broker should get clients, and what its Redis could lose."""

    store: AsyncStore
    topics: TopicTable
    notes: Sequence[str] = ()
    """What the last check found that is no reason against clients; new ones are logged."""
    _syncing: tuple[str, bool] | None = None

    async def check(self) -> str | None:
        """Return None if all connections are up and all servers usable, otherwise the reason.

        Missing scripts (after SCRIPT FLUSH or a failover) are loaded first.
        """
        try:
            with anyio.fail_after(TIMEOUT_S):
                await self.store.ready()
                reason = await self._examine()
            with anyio.move_on_after(LOADING_S) as loading:
                await _load_missing(self.store)
        except TimeoutError:
            return f"Redis does not answer within {TIMEOUT_S:g} s"
        except StoreError as error:
            return str(error)
        return "Redis loads the scripts" if loading.cancelled_caught else reason

    async def log_losses(self) -> None:
        """Log what Redis could lose. The scripts are loaded by the first check, or as they run."""
        with suppress(StoreError), anyio.move_on_after(TIMEOUT_S):
            await self.store.ready()
            await self._examine()

    async def _examine(self) -> str | None:
        """Return why a server refuses writes, None if all take them; note the other findings."""
        await self.topics.count()  # which reads the table unless it is fresh
        promised, reason, notes = self.topics.strictest, None, list[str]()
        if self._syncing is None and promised is not None and promised.fsync:
            self._syncing = await syncing_of(self.store)
        for address, info in (await self.store.info("default")).values():
            refused = why_writes_are_refused(info)
            if refused and reason is None:
                reason = f"Redis at {address} refuses writes: {refused}"
            findings = list(losses(info))
            if promised is not None:
                topics = [(topic.name, topic.policy.acks_all) for topic in self.topics]
                findings += unkept(topics, info, *(self._syncing or ("", False)))
            notes += [
                f"{each.subject} of Redis at {address}: {each.sentence}"
                for each in findings
                if each.grade != "ok" and each.subject != "writes"
            ]
        for note in notes:
            if note not in self.notes:
                log.warning("Redis can lose records", found=note)
        self.notes = notes
        return reason


async def _load_missing(store: AsyncStore) -> None:
    known = lock.shipped()
    there = await store.command("SCRIPT", "EXISTS", *known.values())
    missing = [name for name, here in zip(known, there, strict=True) if not here]
    for batch in chunks(missing, LOADED_TOGETHER):
        # The loads of a batch share a round trip.
        loads = [store.submit_command("SCRIPT", "LOAD", bundle.load(name).text) for name in batch]
        await all_of(loads)
