"""Readiness check for /readyz: Redis answers, takes writes and has the scripts."""

import anyio

from korvet.scripts import bundle, lock
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError
from korvet.store.handshake import why_writes_are_refused

TIMEOUT_S = 2.0


async def ready(store: AsyncStore) -> str | None:
    """Return None if all connections are up and all servers usable, otherwise the reason.

    Missing scripts (after SCRIPT FLUSH or a failover) are loaded first.
    """
    try:
        with anyio.fail_after(TIMEOUT_S):
            await store.ready()
            await _load_missing(store)
            return await _refusal(store)
    except TimeoutError:
        return f"Redis does not answer within {TIMEOUT_S:g} s"
    except StoreError as error:
        return str(error)


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
    for name, here in zip(known, there, strict=True):
        if not here:
            await store.command("SCRIPT", "LOAD", bundle.load(name).text)
