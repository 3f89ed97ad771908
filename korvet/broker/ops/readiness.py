"""Readiness check for /readyz: Redis answers, takes writes and has the scripts."""

import anyio

from korvet.base.bounded import chunks
from korvet.scripts import bundle, lock
from korvet.store.async_store import AsyncStore, all_of
from korvet.store.errors import StoreError
from korvet.store.handshake import why_writes_are_refused

TIMEOUT_S = 2.0
LOADING_S = 2.9
"""With TIMEOUT_S less than what a request of the ops port may take; the next one continues."""
LOADED_TOGETHER = 10
"""Scripts that Redis compiles one after another: it serves nothing else for some milliseconds."""


async def ready(store: AsyncStore) -> str | None:
    """Return None if all connections are up and all servers usable, otherwise the reason.

    Missing scripts (after SCRIPT FLUSH or a failover) are loaded first.
    """
    try:
        with anyio.fail_after(TIMEOUT_S):
            await store.ready()
            reason = await _refusal(store)
        with anyio.move_on_after(LOADING_S) as loading:
            await _load_missing(store)
    except TimeoutError:
        return f"Redis does not answer within {TIMEOUT_S:g} s"
    except StoreError as error:
        return str(error)
    return "Redis loads the scripts" if loading.cancelled_caught else reason


async def _refusal(store: AsyncStore) -> str | None:
    """Return why a server refuses writes, None if all take them."""
    for section in ("persistence", "replication"):
        for address, info in (await store.info(section)).values():
            if reason := why_writes_are_refused(info):
                return f"Redis at {address} refuses writes: {reason}"
    return None


async def _load_missing(store: AsyncStore) -> None:
    known = lock.shipped()
    there = await store.command("SCRIPT", "EXISTS", *known.values())
    missing = [name for name, here in zip(known, there, strict=True) if not here]
    for batch in chunks(missing, LOADED_TOGETHER):
        # The loads of a batch share a round trip.
        loads = [store.submit_command("SCRIPT", "LOAD", bundle.load(name).text) for name in batch]
        await all_of(loads)
