"""Readiness check for /readyz: Redis answers and has the scripts."""

from functools import cache

import anyio

from korvet.scripts import bundle
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError

PATIENCE_S = 2.0


async def ready(store: AsyncStore) -> str | None:
    """Return None if all connections to Redis are up and have the scripts, otherwise the reason.

    Missing scripts (after SCRIPT FLUSH or a failover) are loaded first.
    """
    try:
        with anyio.fail_after(PATIENCE_S):
            await store.ready()
            await _load_missing(store)
    except TimeoutError:
        return f"Redis does not answer within {PATIENCE_S:g} s"
    except StoreError as error:
        return str(error)
    return None


async def _load_missing(store: AsyncStore) -> None:
    texts = _texts()
    there = await store.command("SCRIPT", "EXISTS", *texts)
    for text, here in zip(texts.values(), there, strict=True):
        if not here:
            await store.command("SCRIPT", "LOAD", text)


@cache
def _texts() -> dict[str, str]:
    """Return the scripts by their sha1."""
    bundles = [bundle.load(name) for name in bundle.names()]
    return {each.sha1: each.text for each in bundles}
