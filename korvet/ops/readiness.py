"""Readiness check for /readyz: Redis answers and has the scripts."""

import anyio

from korvet.scripts import bundle, lock
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError

TIMEOUT_S = 2.0


async def ready(store: AsyncStore) -> str | None:
    """Return None if all connections to Redis are up and have the scripts, otherwise the reason.

    Missing scripts (after SCRIPT FLUSH or a failover) are loaded first.
    """
    try:
        with anyio.fail_after(TIMEOUT_S):
            await store.ready()
            await _load_missing(store)
    except TimeoutError:
        return f"Redis does not answer within {TIMEOUT_S:g} s"
    except StoreError as error:
        return str(error)
    return None


async def _load_missing(store: AsyncStore) -> None:
    known = lock.shipped()
    there = await store.command("SCRIPT", "EXISTS", *known.values())
    for name, here in zip(known, there, strict=True):
        if not here:
            await store.command("SCRIPT", "LOAD", bundle.load(name).text)
